"""taichi: fields in a pool of its own, arrays, and kernels that LLVM compiles to PTX."""
import taichi as ti

import client

ti.init(arch=ti.cuda, device_memory_GB=0.1, log_level=ti.ERROR, offline_cache=False)
x = ti.field(ti.f32, shape=100000)
ti.sync()  # which makes the field


@ti.kernel
def double():
    for i in x:
        x[i] = 2 * x[i] + i


@ti.kernel
def total() -> ti.f32:
    result = 0.0
    for i in x:
        result += x[i]
    return result


def work():
    for _ in range(5):
        double()
    total()
    assert x.to_numpy().shape == (100000,)


def take(i):
    array = ti.ndarray(ti.f32, shape=64 << 18)
    array.fill(i)
    return array


client.main(work, take, 64, RuntimeError, ti.sync)
