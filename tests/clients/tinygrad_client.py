"""tinygrad: tensors, kernels that it writes in PTX, and graphs of them, which TinyJit captures and launches again."""
import numpy
from tinygrad import Device, Tensor, TinyJit

import client


@TinyJit
def step(a, b):
    return ((a @ b).relu() + 1).realize()


def work():
    # Three times: the second call captures a graph, the third launches it.
    for _ in range(4):
        a, b = (Tensor(numpy.ones((256, 256), dtype=numpy.float32)).realize() for _ in "ab")
        assert step(a, b).numpy().shape == (256, 256)
    assert Tensor.rand(1000).sum().numpy().shape == ()


def take(i):
    return Tensor.full((64 << 18,), float(i)).contiguous().realize()


client.main(work, take, 64, (MemoryError, RuntimeError), Device["CUDA"].synchronize)
