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
 *                close, finish, steal,       guard.cc: close_guard, finish, steal_idle_units, retire_guard, and
 *                retire, use, empty          use_idle_units and add_idle_units
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
 *            GUARDS       with KINDS=2: the second lane of a rank has a guard. Ranks charge blocks ahead on it, use and
 *                         empty them; thieves take what is idle                                        (off)
 *            THIEVES      processes that only take what is idle, once, from all slots                  (0)
 *            EXEC         rank 1 is what rank 0 becomes by exec: same pid, same start time; RANKS=2    (off)
 *            ALONE=n      at any moment all but one process are stopped (SIGSTOP) until that one has ended; it must
 *                         end within n steps                                                           (off)
 *            MUT_...      breaks the protocol in one line; see run.sh
 *
 * ASSERTED   after every write:
 *              exact        val(D) is the sum of what the lanes hold (EFF)
 *              covered      no rank holds memory that is not charged
 *              unsold       no living rank uses more blocks than its guarded lane counts for
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
#ifndef THIEVES
#define THIEVES 0
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
#define PROCESSES (RANKS + SWEEPERS + ADMIN_PROCESSES + READERS + THIEVES)

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

#ifdef GUARDS
typedef GuardWord { byte state, target, seq }
#define CLOSED 0
#define OPEN 1
#define FIXED 2
GuardWord guard[SLOTS];
#endif

/* ---- what only the checker knows --------------------------------------------------------------------------------- */

bool alive[PROCESSES];
byte held[PROCESSES];  /* memory that a rank really has, counted from the moment its charge is committed */
byte promised = LIMIT; /* no reserve may succeed beyond this: what the last finished set_limit said */
byte crashes, ended;
#ifdef GUARDS
byte blocks[PROCESSES]; /* of `held`: what a rank uses of its guarded lane */
#endif

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
#ifdef GUARDS
#define DIE held[me] = 0; blocks[me] = 0; alive[me] = false
#else
#define DIE held[me] = 0; alive[me] = false
#endif

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
bool exact, covered, unsold, limited, obeyed, emptied, swept, unwaited, pictured, settled;
#define CHECK(name, condition) assert(name || (condition))
#ifdef GUARDS
#define UNSOLD_IN(s) (owner[s].state == FREE || blocks[owner[s].who] <= EFF(LANE(s, 1)))
#if RANK_SLOTS == 1
#define UNSOLD UNSOLD_IN(1)
#else
#define UNSOLD (UNSOLD_IN(1) && UNSOLD_IN(2))
#endif
#else
#define UNSOLD true
#endif
#define INVARIANT \
  CHECK(exact, D.val == SUM_EFF); CHECK(covered, SUM_HELD <= D.val); CHECK(unsold, UNSOLD); CHECK(limited, LIMITED)

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
  bool same, moved, tagged, refused, swapped, recycled, published, suspect, was_dead GUARD_LOCALS

#ifdef GUARDS
#define GUARD_LOCALS ; GuardWord g; byte i; bool done  /* the guard as last read; the slot, inside steal */
#define CLEAR_GUARD_LOCALS CLEAR_g; i = 0; done = 0;
#define CLEAR_g g.state = 0; g.target = 0; g.seq = 0
#else
#define GUARD_LOCALS
#define CLEAR_GUARD_LOCALS
#endif

#define CLEAR_LOCALS \
  CLEAR_GUARD_LOCALS \
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

#ifdef MUT_ANYBODY_APPLIES_BY_STORE
#define BY_STORE(own) true
#else
#define BY_STORE(own) own
#endif

/* Moves lane l from c to nx, which is published. Leaves `refused`. `gain` is what the rank may then really allocate.
 * The lane's owner (`own`) applies by a store, everybody else by CAS. */
inline commit(l, own, check, gain) {
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
     if :: tagged || d.lane != l -> help() :: else fi;  /* else it was applied: cur was read after D */
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
     :: atomic {
          swapped -> CRASH;
          if :: BY_STORE(own) || SAME(cur[l], c) -> COPY(cur[l], nx) :: else fi;
          INVARIANT; STEP
        }
        break
     :: !swapped
     fi
  od;
  CLEAR_d; bound = 0; moved = 0; tagged = 0; swapped = 0
}

/* ---- guard.cc ---------------------------------------------------------------------------------------------------- */

#ifdef GUARDS
#ifdef MUT_GUARD_WITHOUT_SEQ
#define GUARD_SEQ(n) 0
#define IS_ABOUT(word) true
#else
#define GUARD_SEQ(n) (n)
#define IS_ABOUT(word) (g.seq == word.seq)
#endif

#define LOAD_GUARD(s) atomic { g.state = guard[s].state; g.target = guard[s].target; g.seq = guard[s].seq; STEP }
#define GUARD_IS_STILL_g(s) (guard[s].state == g.state && guard[s].target == g.target && guard[s].seq == g.seq)
#define SET_GUARD(s, how, what, when) guard[s].state = how; guard[s].target = what; guard[s].seq = GUARD_SEQ(when)
#define CLOSE_GUARD(s) SET_GUARD(s, CLOSED, 0, 0)

/* Brings about what g, which is fixed, says of slot s. */
inline finish(s) {
  do
  :: atomic { COPY(c, cur[LANE(s, 1)]); STEP }
     if
     :: !IS_ABOUT(c) -> break  /* applied */
     :: IS_ABOUT(c)
     fi;
     atomic { COPY(p, next[LANE(s, 1)]); STEP }
#ifdef MUT_FINISH_DOES_NOT_RECHECK_GUARD
     same = 1;
#else
     atomic { same = GUARD_IS_STILL_g(s); STEP }
#endif
     if :: !same -> break :: else fi;
     same = 0;
     nx.val = g.target; nx.seq = c.seq + 1;
     if
     :: SAME(p, nx) -> published = 1
     :: atomic {
          !SAME(p, nx) -> CRASH;
          if :: SAME(next[LANE(s, 1)], p) -> COPY(next[LANE(s, 1)], nx) :: else fi;
          published = SAME(next[LANE(s, 1)], nx);
          INVARIANT; STEP
        }
     fi;
     if :: published -> published = 0; commit(LANE(s, 1), false, false, 0); break :: else fi
  od;
  CLEAR(c); CLEAR(p); CLEAR(nx); same = 0;
  atomic { CRASH; if :: GUARD_IS_STILL_g(s) -> SET_GUARD(s, OPEN, g.target, g.seq + 1) :: else fi; STEP }
  CLEAR_g
}

/* The owner's. Leaves in `idle` what of the lane is. */
inline close(s) {
  idle = 0;
  do
  :: LOAD_GUARD(s);
     if
     :: g.state == CLOSED -> break
     :: g.state == FIXED -> finish(s)
     :: atomic {
          g.state == OPEN -> CRASH;
          if
          :: GUARD_IS_STILL_g(s) -> CLOSE_GUARD(s); idle = cur[LANE(s, 1)].val - g.target; done = 1
          :: else
          fi;
          STEP
        }
        if :: done -> done = 0; break :: else fi
     fi
  od;
  CLEAR_g
}

#define OPEN_GUARD(s) \
  atomic { CRASH; SET_GUARD(s, OPEN, cur[LANE(s, 1)].val - idle, cur[LANE(s, 1)].seq); idle = 0; STEP }

/* Anybody's: takes what is idle in slot s. */
inline steal(s) {
  do
  :: LOAD_GUARD(s);
     if
     :: g.state == CLOSED -> break
     :: g.state == FIXED -> finish(s); break
     :: atomic { g.state == OPEN -> COPY(c, cur[LANE(s, 1)]); STEP }
        if
        :: atomic {
             IS_ABOUT(c) && c.val > g.target -> CRASH;
             CLEAR(c);
             if :: GUARD_IS_STILL_g(s) -> guard[s].state = FIXED; g.state = FIXED; done = 1 :: else fi;
             STEP
           }
           if :: done -> done = 0; finish(s); break :: else fi
        :: atomic { else -> CLEAR(c); same = GUARD_IS_STILL_g(s); STEP }
           if :: same -> same = 0; break :: else fi
        fi
     fi
  od;
  CLEAR_g
}

inline steal_all() {
  i = 1;
  do :: i < SLOTS -> steal(i); i++ :: else -> break od;
  i = 0
}
#endif

#define LOAD_OWNER_AGAIN(s) atomic { recycled = !OWNER_IS_STILL_ow(s); STEP }

/* Empties slot s, whose owner word was ow and is dead, and gives it back. */
inline reclaim(s) {
#ifndef MUT_RECLAIM_DOES_NOT_HELP
  LOAD_D;
  help();
#endif
#if defined(GUARDS) && !defined(MUT_RECLAIM_LEAVES_GUARD_OPEN)
  do
  :: LOAD_GUARD(s);
     if
     :: g.state == CLOSED -> break
     :: g.state == FIXED -> CLEAR_d; finish(s)
     :: g.state == OPEN ->
        LOAD_OWNER_AGAIN(s);
        if
        :: recycled -> break
        :: atomic { !recycled -> CRASH; if :: GUARD_IS_STILL_g(s) -> CLOSE_GUARD(s) :: else fi; STEP }
        fi
     fi
  od;
  CLEAR_g;
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
           if :: published -> published = 0; commit(LANE(s, k), false, false, 0); k++ :: else fi
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

#if THIEVES > 0
proctype thief(byte me) CAN_RUN {
  LOCALS;
  steal_all();
dead:
  END
}
#endif

/* ---- rank.cc, claim.cc ------------------------------------------------------------------------------------------- */

#define NOTHING 0
#define RESERVE 1
#define RELEASE 2
#define FORCE 3
#define TOP_UP 4 /* these three on the guarded lane */
#define USE 5
#define EMPTY 6

proctype rank(byte me) CAN_RUN {
  LOCALS;
  byte slot, lane, op, n, ops;
#ifdef GUARDS
  byte idle;
#endif
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
#ifdef GUARDS
        :: lane == LANE(slot, 1) -> op = TOP_UP; n = 1
        :: lane == LANE(slot, 1) -> op = USE; n = 1
        :: lane == LANE(slot, 1) && blocks[me] > 0 -> op = EMPTY; n = 1
        :: lane == LANE(slot, 0) -> op = RESERVE; n = 1
        :: lane == LANE(slot, 0) && cur[lane].val > 0 -> op = RELEASE; n = 1
#else
        :: op = RESERVE; n = 1
        :: op = RESERVE; n = 2
        :: cur[lane].val > 0 -> op = RELEASE; n = 1
#ifdef FORCED
        :: op = FORCE; n = 1
#endif
#endif
        fi
     fi

#ifdef GUARDS
  :: !sweep_due && op == USE ->
     LOAD_GUARD(slot);
     if
     :: g.state != OPEN -> CLEAR_g; close(slot); OPEN_GUARD(slot); op = NOTHING
     :: atomic { g.state == OPEN -> COPY(c, cur[lane]); STEP }
        if
        :: atomic {
             IS_ABOUT(c) && c.val > g.target -> CRASH;
             if
             :: GUARD_IS_STILL_g(slot) ->
#ifndef MUT_USE_DOES_NOT_RAISE_TARGET
                guard[slot].target = g.target + 1;
#endif
                held[me]++; blocks[me]++; op = NOTHING
             :: else
             fi;
             INVARIANT; STEP
           }
        :: atomic { else -> if :: GUARD_IS_STILL_g(slot) -> op = NOTHING :: else fi; STEP }
        fi;
        CLEAR(c); CLEAR_g
     fi;
     if :: op == NOTHING -> n = 0; lane = 0 :: else fi

  :: !sweep_due && op == EMPTY ->
     if
     :: n == 1 -> atomic { CRASH; held[me]--; blocks[me]--; n = 2; STEP }  /* the driver has freed it */
     :: else
     fi;
     LOAD_GUARD(slot);
     if
     :: atomic {
          g.state == OPEN -> CRASH;
          if :: GUARD_IS_STILL_g(slot) -> guard[slot].target = g.target - 1; op = NOTHING :: else fi;
          STEP
        }
        CLEAR_g
     :: true ->  /* too much is idle already */
        CLEAR_g;
        close(slot);
        atomic { COPY(c, cur[lane]); STEP }
        atomic { CRASH; nx.seq = c.seq + 1; nx.val = c.val - 1; COPY(next[lane], nx); INVARIANT; STEP }
        commit(lane, true, false, 0);
        CLEAR(c); CLEAR(nx);
        OPEN_GUARD(slot);
        op = NOTHING
     fi;
     if :: op == NOTHING -> n = 0; lane = 0 :: else fi

  :: !sweep_due && op == TOP_UP ->
#ifdef MUT_OWNER_DOES_NOT_CLOSE
     if :: guard[slot].state == OPEN -> idle = cur[lane].val - guard[slot].target :: else -> idle = 0 fi;
#else
     close(slot);
#endif
     atomic { COPY(c, cur[lane]); STEP }
     atomic { CRASH; nx.seq = c.seq + 1; nx.val = c.val + 1; COPY(next[lane], nx); INVARIANT; STEP }
     commit(lane, true, true, 0);
     CLEAR(c); CLEAR(nx);
     if :: !refused -> idle++ :: else -> refused = 0 fi;
     OPEN_GUARD(slot);
     op = NOTHING; n = 0; lane = 0
#endif

  :: !sweep_due && slot != 0 && op != NOTHING && op < TOP_UP ->
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
     commit(lane, true, (op == RESERVE), n);
     CLEAR(c); CLEAR(nx);
     if
#ifndef GUARDS  /* there, sweepers and thieves are processes of their own */
     :: refused && !has_swept -> sweep_due = 1; has_swept = 1
#endif
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
  atomic {
    slot = 0; lane = 0; op = NOTHING; n = 0; ops = 0; sweep_due = 0; has_swept = 0;
#ifdef GUARDS
    idle = 0
#endif
  }
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
  commit(ROOT_LANE, false, false, 0);
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
       :: me >= RANKS + SWEEPERS + ADMIN_PROCESSES && me < PROCESSES - THIEVES -> run reader(me)
#endif
#if THIEVES > 0
       :: me >= PROCESSES - THIEVES -> run thief(me)
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
#ifdef GUARDS
    steal_all();
#endif
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
