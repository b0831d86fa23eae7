/* The accounting protocol of libvgpu/region, for spin. run.sh runs it; README.md says what it proves.
 *
 * MODELLED   One device. Slot 0 is root's, with one lane; slots 1..RANK_SLOTS belong to ranks, KINDS lanes each.
 *            Ranks attach, reserve, release, leave or die; sweepers sweep; administrators change the limit, one after
 *            the other; readers take snapshots.
 *                help, commit, reclaim       accounting.cc in libvgpu/region
 *                sweep                       sweep.cc; its filter is was_ever_used() in accounting.cc
 *                rank                        rank.cc: Rank::reserve, force, release, leave; claim.cc: claim_slot
 *                admin                       admin.cc: set_memory_limit
 *                reader                      usage_reader.cc: UsageReader::read
 *            D is DeviceUsage::total, cur and next are Lane::current and Lane::next, c and nx the two ends of an
 *            Operation, EFF is effective_units().
 *
 * A STEP     is one load, store or compare-and-swap of one shared word: one atomic{}. Between two steps anybody else
 *            may run, for as long as it likes. Memory is sequentially consistent.
 *
 * A CRASH    may take the place of any write: the process dies instead, between its last write and this one. Dying
 *            after a mere read leaves the same shared state, so these are all the crash points there are.
 *
 * SWITCHES   (defaults in parentheses)
 *            RANKS        rank incarnations; more of them than RANK_SLOTS means slots are reused       (2)
 *            RANK_SLOTS   slots for ranks                                                              (2)
 *            KINDS        lanes per rank and device, 1 or 2                                            (1)
 *            OPS          operations per rank, at most                                                 (2)
 *            SWEEPERS     processes that only sweep, once, all slots                                   (1)
 *            CRASHES      how many processes may die, of whichever sort                                (2)
 *            LIMIT        units of memory; a reserve takes 1 or 2, a release gives back 1              (2)
 *            FORCED       ranks also add 1 unit past the limit (context size)                          (off)
 *            ADMINS       how many times set_limit runs: 1 or LIMIT units, by a new process each time  (0)
 *            READERS      processes that take one snapshot                                             (0)
 *            EXEC         rank 1 is what rank 0 becomes by exec: same pid, same start time; RANKS=2    (off)
 *            ALONE=n      at any moment all but one process are stopped (SIGSTOP) until that one has ended; it must
 *                         end within n steps                                                           (off)
 *            MUT_...      breaks the protocol in one line; see run.sh
 *
 * ASSERTED   after every write:
 *              exact        val(D) is the sum of what the lanes hold (EFF)
 *              covered      no rank holds memory that is not charged
 *              limited      val(D) never exceeds LIMIT (without FORCED, which is there to exceed it)
 *            and where it belongs:
 *              obeyed       a reserve that succeeds after set_limit returned obeys that limit (commit)
 *              emptied      a slot is given back only when its lanes hold nothing (reclaim)
 *              swept        what was dead when a sweep reached it holds nothing when the sweep has passed, even if
 *                           some other sweeper stopped half-way: so a refusal is never a dead rank's doing (sweep)
 *              unwaited     a process that runs alone ends within ALONE steps
 *              pictured     a snapshot that adds up to D, the same D before and after, is true of one instant (reader)
 *              settled      when all is over, one sweep leaves val(D) equal to what living ranks hold, and no slot
 *                           with a dead owner (init)
 *              and spin's own: no deadlock.
 */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef RANK_SLOTS
#define RANK_SLOTS 2
#endif
#ifndef KINDS
#define KINDS 1
#endif
#ifndef OPS
#define OPS 2
#endif
#ifndef SWEEPERS
#define SWEEPERS 1
#endif
#ifndef CRASHES
#define CRASHES 2
#endif
#ifndef LIMIT
#define LIMIT 2
#endif
#ifndef ADMINS
#define ADMINS 0
#endif
#ifndef READERS
#define READERS 0
#endif

/* One process plays all administrators: the OFD lock on `limits` lets them live only one after the other. */
#if ADMINS > 0
#define ADMIN_PROCESSES 1
#else
#define ADMIN_PROCESSES 0
#endif

#define SLOTS (1 + RANK_SLOTS)
#define LANES (1 + RANK_SLOTS * KINDS)
#define ROOT_LANE 0
#define LANE(slot, kind) (1 + (slot - 1) * KINDS + kind)
#define PROCESSES (RANKS + SWEEPERS + ADMIN_PROCESSES + READERS)

/* ---- shared memory; all zero is the empty region ----------------------------------------------------------------- */

typedef DeviceWord { byte val, lane, seq }
typedef LaneWord { byte val, seq }
typedef OwnerWord { byte state, who, gen }

#define FREE 0
#define ACTIVE 1
#define EXITING 2

DeviceWord D;
LaneWord cur[LANES], next[LANES];
OwnerWord owner[SLOTS];
byte limit = LIMIT;

/* ---- what only the checker knows --------------------------------------------------------------------------------- */

bool alive[PROCESSES];
byte held[PROCESSES];  /* memory that a rank really has, counted from the moment its charge is committed */
byte promised = LIMIT; /* no reserve may succeed beyond this: what the last finished set_limit said */
byte crashes, ended;

#define NOBODY 255
#ifdef ALONE
byte survivor = NOBODY, steps_alone;
bool has_ended[PROCESSES];
#define CAN_RUN provided(survivor == NOBODY || survivor == _pid - 1)
#define STEP if :: survivor == me -> steps_alone++; CHECK(unwaited, steps_alone <= ALONE) :: else fi
#define UNFREEZE has_ended[me] = true; if :: survivor == me -> survivor = NOBODY; steps_alone = 0 :: else fi
#else
#define CAN_RUN
#define STEP skip
#define UNFREEZE skip
#endif

#define END atomic { CLEAR_LOCALS; ended++; UNFREEZE }
#define CRASH if :: true :: crashes < CRASHES -> crashes++; DIE; goto dead fi
#define DIE held[me] = 0; alive[me] = false

/* What a lane holds: `next` if its operation is committed but not yet applied. */
#define EFF(l) ((D.lane == l && D.seq == cur[l].seq + 1 && next[l].seq == cur[l].seq + 1) -> next[l].val : cur[l].val)
#if LANES == 2
#define SUM_EFF (EFF(0) + EFF(1))
#elif LANES == 3
#define SUM_EFF (EFF(0) + EFF(1) + EFF(2))
#elif LANES == 4
#define SUM_EFF (EFF(0) + EFF(1) + EFF(2) + EFF(3))
#elif LANES == 5
#define SUM_EFF (EFF(0) + EFF(1) + EFF(2) + EFF(3) + EFF(4))
#endif
#if KINDS == 1
#define SLOT_EFF(s) EFF(LANE(s, 0))
#elif KINDS == 2
#define SLOT_EFF(s) (EFF(LANE(s, 0)) + EFF(LANE(s, 1)))
#endif
#if RANKS == 1
#define SUM_HELD held[0]
#elif RANKS == 2
#define SUM_HELD (held[0] + held[1])
#elif RANKS == 3
#define SUM_HELD (held[0] + held[1] + held[2])
#elif RANKS == 4
#define SUM_HELD (held[0] + held[1] + held[2] + held[3])
#endif
#ifdef FORCED
#define LIMITED true
#else
#define LIMITED (D.val <= LIMIT)
#endif

/* Spin's complaint begins with the name of the check that failed. The names are never set. */
bool exact, covered, limited, obeyed, emptied, swept, unwaited, pictured, settled;
#define CHECK(name, condition) assert(name || (condition))
#define INVARIANT CHECK(exact, D.val == SUM_EFF); CHECK(covered, SUM_HELD <= D.val); CHECK(limited, LIMITED)

/* ---- words ------------------------------------------------------------------------------------------------------- */

#define SAME(a, b) (a.val == b.val && a.seq == b.seq)
#define COPY(to, from) to.val = from.val; to.seq = from.seq
#define CLEAR(word) word.val = 0; word.seq = 0

#define D_IS_STILL_d (D.val == d.val && D.lane == d.lane && D.seq == d.seq)
#define LOAD_D atomic { d.val = D.val; d.lane = D.lane; d.seq = D.seq; STEP }
#define CLEAR_d d.val = 0; d.lane = 0; d.seq = 0
#ifdef MUT_CAS_COMPARES_VALUE_ONLY
#define D_CAS_SUCCEEDS (D.val == d.val)
#else
#define D_CAS_SUCCEEDS D_IS_STILL_d
#endif

#ifdef EXEC
#define PID(who) 0
#else
#define PID(who) who
#endif
#define OWNER_IS_STILL_ow(s) (owner[s].state == ow.state && PID(owner[s].who) == PID(ow.who) && owner[s].gen == ow.gen)

/* Private to a process. They are cleared as soon as they are of no more use, so that equal states look equal. */
#define LOCALS                                                         \
  DeviceWord d;                    /* as last read */                  \
  LaneWord c, nx, p;               /* cur, the next value, next */     \
  LaneWord hc, hp;                 /* the same, inside help */         \
  OwnerWord ow;                    /* as read by sweep */              \
  byte s, k;                       /* slot and kind, inside sweep */   \
  byte bound;                      /* the limit, as last read */       \
  bool same, moved, tagged, refused, swapped, recycled, published, suspect, was_dead

#define CLEAR_LOCALS \
  CLEAR_d; CLEAR(c); CLEAR(nx); CLEAR(p); CLEAR(hc); CLEAR(hp); ow.state = 0; ow.who = 0; ow.gen = 0; \
  s = 0; k = 0; bound = 0; same = 0; moved = 0; tagged = 0; refused = 0; swapped = 0; recycled = 0; published = 0; \
  suspect = 0; was_dead = 0

/* ---- accounting.cc ----------------------------------------------------------------------------------------------- */

/* Applies the operation that committed d. */
inline help() {
  atomic { COPY(hc, cur[d.lane]); STEP }
  if
  :: hc.seq + 1 != d.seq  /* applied already */
  :: atomic { hc.seq + 1 == d.seq -> COPY(hp, next[d.lane]); STEP }
     if
     :: hp.seq != hc.seq + 1  /* applied, the owner moved on */
     :: atomic { hp.seq == hc.seq + 1 -> same = D_IS_STILL_d; STEP }
        if
        :: !same  /* replaced, hence applied */
        :: atomic {
             same -> CRASH;
             if :: SAME(cur[d.lane], hc) -> COPY(cur[d.lane], hp) :: else fi;
             INVARIANT; STEP
           }
        fi
     fi
  fi;
  CLEAR(hc); CLEAR(hp); same = 0
}

#define LOAD_CUR(l) atomic { moved = !SAME(cur[l], c); STEP }
#ifdef MUT_LIMIT_READ_ONCE
#define LOAD_LIMIT skip
#else
#define LOAD_LIMIT bound = limit
#endif

/* Moves lane l from c to nx, which is published. Leaves `refused`. `gain` is what the rank may then really allocate. */
inline commit(l, check, gain) {
#ifdef MUT_LIMIT_READ_ONCE
  atomic { bound = limit; STEP }
#endif
  do
#ifdef MUT_COMMIT_READS_CUR_BEFORE_D
  :: LOAD_CUR(l);
     LOAD_D;
#else
  :: LOAD_D;
     LOAD_CUR(l);
#endif
     tagged = (d.lane == l && d.seq == nx.seq);
     if
     :: moved -> break  /* committed and applied */
     :: atomic { !moved && !tagged && check -> LOAD_LIMIT; refused = (d.val - c.val + nx.val > bound); STEP }
        if :: refused -> break :: else fi
     :: !moved && (tagged || !check)
     fi;
#if defined(MUT_COMMIT_DOES_NOT_HELP)
     if :: tagged -> help() :: else fi;
#elif defined(MUT_COMMIT_WAITS)
     do :: atomic { cur[d.lane].seq + 1 == d.seq && D_IS_STILL_d -> STEP } :: else -> break od;
#else
     help();
#endif
     if :: tagged -> break :: else fi;
     atomic {
       CRASH;
       if
       :: D_CAS_SUCCEEDS ->
          D.val = d.val - c.val + nx.val; D.lane = l; D.seq = nx.seq; swapped = 1;
          held[me] = held[me] + gain;
          CHECK(obeyed, !check || D.val <= promised)
       :: else
       fi;
       INVARIANT; STEP
     }
     if
     :: atomic { swapped -> CRASH; if :: SAME(cur[l], c) -> COPY(cur[l], nx) :: else fi; INVARIANT; STEP }
        break
     :: !swapped
     fi
  od;
  CLEAR_d; bound = 0; moved = 0; tagged = 0; swapped = 0
}

#define LOAD_OWNER_AGAIN(s) atomic { recycled = !OWNER_IS_STILL_ow(s); STEP }

/* Empties slot s, whose owner word was ow and is dead, and gives it back. */
inline reclaim(s) {
#ifndef MUT_RECLAIM_DOES_NOT_HELP
  LOAD_D;
  help();
#endif
  k = 0;
  do
  :: k < KINDS && !recycled ->
#ifdef MUT_RECLAIM_READS_OWNER_FIRST
     LOAD_OWNER_AGAIN(s);
#endif
     atomic { COPY(c, cur[LANE(s, k)]); STEP }
     if
     :: c.val == 0 -> k++
     :: atomic { c.val != 0 -> COPY(p, next[LANE(s, k)]); STEP }
#if !defined(MUT_RECLAIM_DOES_NOT_RECHECK_OWNER) && !defined(MUT_RECLAIM_READS_OWNER_FIRST)
        LOAD_OWNER_AGAIN(s);
#endif
        if
        :: recycled
        :: !recycled ->
           nx.val = 0; nx.seq = c.seq + 1;
           if
           :: SAME(p, nx) -> published = 1
           :: atomic {
                !SAME(p, nx) -> CRASH;
                if :: SAME(next[LANE(s, k)], p) -> COPY(next[LANE(s, k)], nx) :: else fi;
                published = SAME(next[LANE(s, k)], nx);
                INVARIANT; STEP
              }
           fi;
           if :: published -> published = 0; commit(LANE(s, k), false, 0); k++ :: else fi
        fi
     fi
  :: else -> break
  od;
  CLEAR_d; CLEAR(c); CLEAR(p); CLEAR(nx); k = 0;
  if
  :: recycled
  :: atomic {
       !recycled -> CRASH;
       if
       :: OWNER_IS_STILL_ow(s) ->
          CHECK(emptied, SLOT_EFF(s) == 0);
          owner[s].state = FREE; owner[s].who = 0;
#ifndef MUT_GENERATION_KEPT
          owner[s].gen = ow.gen + 1
#endif
       :: else
       fi;
       STEP
     }
  fi;
  recycled = 0
}

#ifdef MUT_SWEEP_FILTERS_BY_VALUE
#define IS_USED(word) (word.val != 0)
#else
#define IS_USED(word) (word.val != 0 || word.seq != 0)
#endif

/* sweep.cc. Reclaims the slots of the dead; if `filter`, passes over those that were never used on this device. */
inline sweep(filter) {
  s = 1;
  do
  :: s < SLOTS ->
     atomic {
       ow.state = owner[s].state; ow.who = owner[s].who; ow.gen = owner[s].gen;
       was_dead = (ow.state != FREE && !alive[ow.who]);
       STEP
     }
     suspect = (ow.state != FREE);
     if
     :: suspect && filter ->
        k = 0; suspect = 0;
        do
        :: k < KINDS && !suspect ->
           atomic { suspect = IS_USED(cur[LANE(s, k)]); STEP }
           atomic { suspect = suspect || IS_USED(next[LANE(s, k)]); STEP }
           k++
        :: else -> break
        od;
        k = 0
     :: else
     fi;
     if
     :: !suspect
     :: atomic { suspect -> suspect = !alive[ow.who]; STEP }  /* the verdict */
        if :: suspect -> suspect = 0; reclaim(s) :: else fi
     fi;
     CHECK(swept, !was_dead || !OWNER_IS_STILL_ow(s) || SLOT_EFF(s) == 0);
     s++
  :: else -> break
  od;
  s = 0; ow.state = 0; ow.who = 0; ow.gen = 0; was_dead = 0; suspect = 0
}

proctype sweeper(byte me) CAN_RUN {
  LOCALS;
  sweep(false);
dead:
  END
}

/* ---- rank.cc, claim.cc ------------------------------------------------------------------------------------------- */

#define NOTHING 0
#define RESERVE 1
#define RELEASE 2
#define FORCE 3

proctype rank(byte me) CAN_RUN {
  LOCALS;
  byte slot, lane, op, n, ops;
  bool sweep_due, has_swept;

#ifdef EXEC
  if :: me == 1 && alive[0] -> atomic { DIE } goto dead :: else fi;  /* the exec is still to come: not in this run */
#endif
  do
  :: sweep_due ->
     sweep(slot != 0); sweep_due = 0

  :: !sweep_due && slot == 0 ->  /* attach: the first free slot; if none, sweep and try again */
     s = 1;
     do
     :: s < SLOTS && slot == 0 ->
        atomic {
          CRASH;
          if :: owner[s].state == FREE -> owner[s].state = ACTIVE; owner[s].who = me; slot = s :: else fi;
          STEP
        }
        s++
     :: else -> break
     od;
     s = 0;
     if
     :: slot != 0 -> has_swept = 0
     :: slot == 0 && !has_swept -> sweep_due = 1; has_swept = 1
     :: slot == 0 && has_swept -> atomic { DIE } goto dead  /* detached: refuses everything */
     fi

  :: !sweep_due && slot != 0 && op == NOTHING ->
     if
     :: true -> break
     :: ops < OPS ->
        ops++;
        if
        :: lane = LANE(slot, 0)
#if KINDS > 1
        :: lane = LANE(slot, 1)
#endif
        fi;
        if
        :: op = RESERVE; n = 1
        :: op = RESERVE; n = 2
        :: cur[lane].val > 0 -> op = RELEASE; n = 1
#ifdef FORCED
        :: op = FORCE; n = 1
#endif
        fi
     fi

  :: !sweep_due && slot != 0 && op != NOTHING ->
     atomic { COPY(c, cur[lane]); STEP }
     atomic {
       CRASH;
       nx.seq = c.seq + 1;
       if
       :: op == RELEASE -> held[me]--; nx.val = c.val - n; n = 0  /* the driver has freed it */
       :: else -> nx.val = c.val + n
       fi;
       COPY(next[lane], nx);
       INVARIANT; STEP
     }
     commit(lane, (op == RESERVE), n);
     CLEAR(c); CLEAR(nx);
     if
     :: refused && !has_swept -> sweep_due = 1; has_swept = 1
     :: else -> op = NOTHING; n = 0; lane = 0; has_swept = 0
     fi;
     refused = 0
  od;
  if
  :: true  /* lives on, with what it holds */
  :: atomic { CRASH; owner[slot].state = EXITING; STEP }
     atomic { DIE }
  fi;
dead:
  atomic { slot = 0; lane = 0; op = NOTHING; n = 0; ops = 0; sweep_due = 0; has_swept = 0 }
  END
}

/* ---- admin.cc ---------------------------------------------------------------------------------------------------- */

#if ADMINS > 0
proctype admin(byte me) CAN_RUN {
  LOCALS;
  byte value, changes;

set_limit:
  changes++;
  if :: value = 1 :: value = LIMIT fi;
  atomic {
    CRASH;
    limit = value;
    if :: promised < value -> promised = value :: else fi;
    STEP
  }
#ifndef MUT_SET_LIMIT_DOES_NOT_HELP
  LOAD_D;
  help();
#endif
#ifndef MUT_SET_LIMIT_DOES_NOT_COMMIT
  atomic { COPY(c, cur[ROOT_LANE]); STEP }
  nx.val = c.val; nx.seq = c.seq + 1;
  atomic { CRASH; COPY(next[ROOT_LANE], nx); INVARIANT; STEP }
  commit(ROOT_LANE, false, 0);
#endif
  promised = value;
dead:
  atomic { CLEAR_LOCALS; value = 0 }
  if :: changes < ADMINS -> goto set_limit :: else fi;
  changes = 0;
  END
}
#endif

/* ---- usage_reader.cc --------------------------------------------------------------------------------------------- */

#if READERS > 0
#ifdef MUT_SNAPSHOT_NEED_NOT_ADD_UP
#define ADDS_UP true
#else
#define ADDS_UP (sum == d.val)
#endif

proctype reader(byte me) CAN_RUN {
  LOCALS;
  byte l, sum, tries, seen[LANES];

  do
  :: tries < 2 ->
     tries++;
     LOAD_D;
     do
     :: l < LANES ->
        atomic { COPY(c, cur[l]); STEP }
        atomic {
          COPY(p, next[l]);
          seen[l] = ((d.lane == l && d.seq == c.seq + 1 && p.seq == c.seq + 1) -> p.val : c.val);
          sum = sum + seen[l];
          STEP
        }
        l++
     :: else -> break
     od;
     atomic {
       same = D_IS_STILL_d && ADDS_UP;
       l = 0;
       do
       :: l < LANES -> CHECK(pictured, !same || seen[l] == EFF(l)); seen[l] = 0; l++
       :: else -> break
       od;
       CLEAR_d; CLEAR(c); CLEAR(p); l = 0; sum = 0; STEP
     }
     if :: same -> break :: else fi
  :: else -> break
  od;
  tries = 0;
  END
}
#endif

/* ---- the whole --------------------------------------------------------------------------------------------------- */

#ifdef ALONE
proctype freezer() {
  byte i;
  do
  :: atomic {
       survivor == NOBODY && ended < PROCESSES -> i = 0;
       do
       :: i < PROCESSES - 1 -> i++
       :: !has_ended[i] -> survivor = i; break
       :: i == PROCESSES - 1 && has_ended[i] -> break
       od;
       i = 0
     }
  :: ended == PROCESSES -> break
  od
}
#endif

init {
  LOCALS;
  byte me;
  atomic {
    do
    :: me < PROCESSES -> alive[me] = true;
       if
       :: me < RANKS -> run rank(me)
       :: me >= RANKS && me < RANKS + SWEEPERS -> run sweeper(me)
#if ADMINS > 0
       :: me >= RANKS + SWEEPERS && me < RANKS + SWEEPERS + ADMIN_PROCESSES -> run admin(me)
#endif
#if READERS > 0
       :: me >= RANKS + SWEEPERS + ADMIN_PROCESSES -> run reader(me)
#endif
       fi;
       me++
    :: else -> break
    od;
    me = 0;
#ifdef ALONE
    run freezer()
#endif
  }
  ended == PROCESSES;
  atomic {
    crashes = CRASHES;
    sweep(false);
    INVARIANT;
    CHECK(settled, D.val == SUM_HELD);
    s = 1;
    do
    :: s < SLOTS -> CHECK(settled, owner[s].state == FREE || alive[owner[s].who]); s++
    :: else -> break
    od
  }
dead:
  skip
}
