"""numba-cuda: kernels compiled by NVVM, device arrays, streams, managed memory."""
import warnings

import numpy
from numba import cuda

import client

warnings.simplefilter("ignore")


@cuda.jit
def add(x, y):
    i = cuda.grid(1)
    if i < x.size:
        x[i] += y


def work():
    host = numpy.arange(100000, dtype=numpy.float32)
    stream = cuda.stream()
    for _ in range(3):
        array = cuda.to_device(host, stream=stream)
        add[400, 256, stream](array, 3)
        assert array.copy_to_host(stream=stream).shape == host.shape
    stream.synchronize()
    managed = cuda.managed_array(1000, dtype=numpy.int32)
    managed[:] = 7
    assert managed.sum() == 7000
    free, total = cuda.current_context().get_memory_info()
    assert free <= total


client.main(work, lambda i: cuda.device_array(64 << 18, dtype=numpy.float32), 64, Exception, cuda.synchronize)
