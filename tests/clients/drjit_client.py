"""drjit: arrays that are computed by kernels which it writes in PTX by itself."""
import drjit as dr
from drjit.cuda import Float, UInt32

import client


def work():
    for size in (1000, 100000, 1000):
        x = dr.arange(Float, size)
        for _ in range(3):
            x = dr.fma(x, 2, dr.gather(Float, x, dr.arange(UInt32, size)))
            dr.eval(x)
        assert len(x.numpy()) == size
    assert dr.sum(x).shape == (1,)


def take(i):
    x = dr.empty(Float, 64 << 18)
    x += i
    dr.eval(x)
    return x


client.main(work, take, 64, RuntimeError, dr.sync_thread)
