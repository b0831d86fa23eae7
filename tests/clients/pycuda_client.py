"""pycuda: memory, pitched memory, a pool of its own, a module from PTX, launches, events."""
import numpy
import pycuda.autoinit  # noqa: F401  which makes a context
import pycuda.driver as cuda
import pycuda.tools

import client

PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 data, .param .u32 n)
{
  ret;
}
"""


def work():
    host = numpy.arange(100000, dtype=numpy.float32)
    device = cuda.to_device(host)
    assert (cuda.from_device_like(device, host) == host).all()
    kernel = cuda.module_from_buffer(PTX).get_function("add_one")
    stream, done = cuda.Stream(), cuda.Event()
    kernel(device, numpy.uint32(host.size), block=(256, 1, 1), grid=(4, 1), stream=stream)
    done.record(stream)
    done.synchronize()
    cuda.mem_alloc_pitch(1000, 1000, 4)
    pool = pycuda.tools.DeviceMemoryPool()
    for size in (1000, 1 << 20, 1000):
        pool.allocate(size).free()
    pool.stop_holding()
    free, total = cuda.mem_get_info()
    assert free <= total


client.main(work, lambda i: cuda.mem_alloc(64 << 20), 64, cuda.MemoryError, cuda.Context.synchronize)
