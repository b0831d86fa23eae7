"""Ranks of one job that meet in an MPI barrier and take all the memory they can get, at the same time."""
from cuda.bindings import driver
from mpi4py import MPI

import client

PIECE = 16 << 20
ranks = MPI.COMM_WORLD


class Refused(Exception):
    pass


def must(answer):
    if answer[0] == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        raise Refused("out of memory")
    assert answer[0] == driver.CUresult.CUDA_SUCCESS, answer[0]
    return answer[1] if len(answer) > 1 else None


must(driver.cuInit(0))
ranks.Barrier()
try:
    context = must(driver.cuDevicePrimaryCtxRetain(must(driver.cuDeviceGet(0))))
    must(driver.cuCtxSetCurrent(context))
    pieces = client.fill(lambda i: must(driver.cuMemAlloc(PIECE)), Refused)
    synchronise = lambda: must(driver.cuCtxSynchronize())
except Refused:  # not even a context
    pieces = []
    synchronise = lambda: None
ranks.Barrier()
client.rest(synchronise)
filled = ranks.reduce(len(pieces) * PIECE >> 20)
if ranks.rank == 0:
    print("filled %d MiB" % filled)
    print("all done")
