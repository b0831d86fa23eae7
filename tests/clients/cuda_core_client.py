"""cuda.core: a stream, a kernel from PTX, memory of its pools, pinned memory and events, all by NVIDIA's own bindings."""
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, ObjectCode, launch

import client

PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 data, .param .u32 n)
{
  ret;
}
"""
device = Device(0)
device.set_current()
stream = device.create_stream()


def work():
    kernel = ObjectCode.from_ptx(PTX).get_kernel("add_one")
    for size in (1000, 1 << 20, 64 << 20):
        buffer = device.allocate(size, stream=stream)
        start = stream.record()
        launch(stream, LaunchConfig(grid=4, block=64), kernel, buffer.handle, 1000)
        start.sync()
        buffer.close(stream)
    stream.sync()
    error, free, total = driver.cuMemGetInfo()
    assert error == driver.CUresult.CUDA_SUCCESS and free <= total


client.main(work, lambda i: device.allocate(64 << 20, stream=stream), 64, Exception, stream.sync)
