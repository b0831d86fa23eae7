"""What the numba test runs. Kernels are launched from PTX: compiling them would need an NVVM that fits numba 0.56.

With an argument, instead: "fill" fills the device twice, "work" moves arrays for a second or so.
"""
import ctypes
import sys

import numpy
from numba import cuda
from numba.cuda.cudadrv import driver

PTX = b""".version 7.0
.target sm_70
.address_size 64
.visible .entry add_one(.param .u64 data, .param .u32 n)
{
  ret;
}
"""



def fill(size):
    """Takes pieces until there is no more; returns how many bytes that were, and gives them back."""
    pieces = []
    try:
        while True:
            pieces.append(cuda.device_array(size, dtype=numpy.uint8))
    except driver.CudaAPIError as error:
        assert error.code == 2, error
        print(error)
    return size * len(pieces)


if sys.argv[1:] == ["work"]:
    array = numpy.arange(1000, dtype=numpy.float32)
    for _ in range(15000):
        assert cuda.to_device(array).copy_to_host()[-1] == array[-1]
    sys.exit()
if sys.argv[1:] == ["fill"]:
    print("filled %d MiB, then %d MiB" % (fill(4 << 20) >> 20, fill(4 << 20) >> 20))
    sys.exit()

host = numpy.arange(100000, dtype=numpy.float32)
context = cuda.current_context()
before = context.get_memory_info().free
print("total %d MiB" % (context.get_memory_info().total >> 20))
device = cuda.to_device(host)
assert (device.copy_to_host() == host).all()
piece = device[100:200]
assert (piece.copy_to_host() == host[100:200]).all()
big = cuda.device_array(32 << 20, dtype=numpy.uint8)
assert context.get_memory_info().free <= before - (32 << 20)
del big
context.deallocations.clear()

module = context.create_module_ptx(PTX)
function = module.get_function("add_one")
driver.launch_kernel(
    function.handle, 4, 1, 1, 256, 1, 1, 0, 0, [device.device_ctypes_pointer, ctypes.c_uint32(host.size)]
)
context.synchronize()

managed = cuda.managed_array(1000, dtype=numpy.int32)
managed[:] = 7
assert managed.sum() == 7000
stream = cuda.stream()
event = cuda.event()
with cuda.pinned(host):
    other = cuda.to_device(host, stream=stream)
    event.record(stream)
event.synchronize()
assert (other.copy_to_host() == host).all()
try:
    cuda.device_array(1 << 40, dtype=numpy.uint8)
    raise SystemExit("a terabyte was given")
except driver.CudaAPIError as error:
    assert error.code == 2, error
print("numba: all done")
