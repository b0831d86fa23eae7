#!/bin/sh
# Four ranks of mpirun, by mpi4py: they start at once and share one limit.
. "$(dirname "$0")/lib.sh"
. "$clients/python.sh"
need mpirun openmpi-bin
packages mpi4py cuda-bindings cuda-pathfinder
# Its own directory: mpirun keeps files in /tmp under a name of the user's.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR="$scratch"
ranks=4
# mpirun passes on what ranks write as it comes, half a line of one behind half a line of another: each has a file of its own.
cat >"$scratch/rank" <<'END'
err=$1
shift
exec "$@" 2>"$err.$OMPI_COMM_WORLD_RANK"
END
launcher="mpirun -n $ranks --oversubscribe sh $scratch/rank $scratch/err"
under_limit mpi4py mpi4py_client.py 3G 1500
