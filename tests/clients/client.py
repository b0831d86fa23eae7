"""What the scripts of Python clients share: they work, and may then take all that they can get, and stay for a while."""
import sys
import time


def rest(synchronise):
    """Long enough for an observer to see what a program holds that does nothing more but wait for the device."""
    end = time.monotonic() + 2.3
    while time.monotonic() < end:
        synchronise()
        time.sleep(0.05)


def fill(take, refused, most=200):
    """Calls take(i), which returns what keeps the memory, until it raises `refused`. Returns the pieces."""
    pieces = []
    for i in range(most):
        try:
            pieces.append(take(i))
        except refused as error:
            print("refused:", str(error).strip().splitlines()[0][:200], file=sys.stderr)
            return pieces
    sys.exit("nothing was refused")


def main(work, take, mib, refused, synchronise):
    """Does what the arguments say, one after the other; `take` takes so many MiB."""
    if not sys.argv[1:] or set(sys.argv[1:]) - {"work", "fill"}:
        sys.exit("usage: %s [work] [fill]" % sys.argv[0])
    if "work" in sys.argv:
        work()
    if "fill" in sys.argv:
        if "work" in sys.argv:
            rest(synchronise)
        pieces = fill(take, refused)
        rest(synchronise)
        print("filled %d MiB" % (mib * len(pieces)))
    print("all done")
