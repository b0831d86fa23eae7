// Physical memory, the addresses it is mapped at, the arrays and multicast objects it is behind.
#include "calls.h"

namespace vgpu::test {

namespace {

using Handle = CUmemGenericAllocationHandle;
constexpr CUmemAllocationHandleType kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemAllocationProp properties(Arguments &in) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.id = device(in);
  properties.location.type = properties.location.id < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  if (properties.location.id < 0) properties.location.id = 0;
  properties.requestedHandleTypes = kDescriptor;
  return properties;
}

// "ARRAY HANDLE": puts memory behind an array; a handle of 0 takes it away.
CUarrayMapInfo map_operation(Arguments &in) {
  CUarrayMapInfo operation = {};
  operation.resourceType = CU_RESOURCE_TYPE_ARRAY;
  operation.resource.array = handle<CUarray>(in);
  operation.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL;
  operation.memHandle.memHandle = number(in);
  operation.memOperationType =
      operation.memHandle.memHandle != 0 ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP;
  operation.memHandleType = CU_MEM_HANDLE_TYPE_GENERIC;
  operation.deviceBitMask = 1;
  return operation;
}

constexpr Call kCalls[] = {
    CALL(cuMemCreate,
         {
           const auto bytes = number(in);
           const auto wanted = properties(in);
           return answer<Handle>(out, [&](Handle *h) { return DRIVER(cuMemCreate)(h, bytes, &wanted, 0); });
         }),
    CALL(cuMemRelease, { return DRIVER(cuMemRelease)(number(in)); }),
    CALL(cuMemAddressReserve,
         {
           const auto bytes = number(in);
           return answer<CUdeviceptr>(out,
                                      [&](CUdeviceptr *p) { return DRIVER(cuMemAddressReserve)(p, bytes, 0, 0, 0); });
         }),
    CALL(cuMemAddressFree,
         {
           const auto address = number(in);
           return DRIVER(cuMemAddressFree)(address, number(in));
         }),
    CALL(cuMemMap,
         {
           const auto address = number(in);
           const auto bytes = number(in);
           return DRIVER(cuMemMap)(address, bytes, 0, number(in), 0);
         }),
    CALL(cuMemUnmap,
         {
           const auto address = number(in);
           return DRIVER(cuMemUnmap)(address, number(in));
         }),
    CALL(cuMemRetainAllocationHandle,
         {
           const auto address = handle<void *>(in);
           return answer<Handle>(out, [&](Handle *h) { return DRIVER(cuMemRetainAllocationHandle)(h, address); });
         }),
    CALL(cuMemExportToShareableHandle,
         {
           const auto which = number(in);
           return answer<int>(out,
                              [&](int *fd) { return DRIVER(cuMemExportToShareableHandle)(fd, which, kDescriptor, 0); });
         }),
    CALL(cuMemImportFromShareableHandle,
         {
           void *fd = handle<void *>(in);
           return answer<Handle>(out,
                                 [&](Handle *h) { return DRIVER(cuMemImportFromShareableHandle)(h, fd, kDescriptor); });
         }),

    CALL(bare_array,
         {
           CUDA_ARRAY3D_DESCRIPTOR shape = {};
           shape.Width = 512;
           shape.Height = number(in) / 2048;
           shape.Format = CU_AD_FORMAT_FLOAT;
           shape.NumChannels = 1;
           shape.Flags = next<int>(in) != 0 ? CUDA_ARRAY3D_SPARSE : CUDA_ARRAY3D_DEFERRED_MAPPING;
           return answer<CUarray>(out, [&](CUarray *array) { return DRIVER(cuArray3DCreate_v2)(array, &shape); });
         }),
    CALL(cuMemMapArrayAsync,
         {
           auto operation = map_operation(in);
           return DRIVER(cuMemMapArrayAsync)(&operation, 1, nullptr);
         }),
    CALL(cuMemMapArrayAsync_ptsz,
         {
           auto operation = map_operation(in);
           return DRIVER(cuMemMapArrayAsync_ptsz)(&operation, 1, nullptr);
         }),

    CALL(cuMulticastCreate,
         {
           CUmulticastObjectProp wanted = {};
           wanted.size = number(in);
           wanted.numDevices = next<unsigned>(in);
           return answer<Handle>(out, [&](Handle *h) { return DRIVER(cuMulticastCreate)(h, &wanted); });
         }),
    CALL(cuMulticastAddDevice,
         {
           const auto object = number(in);
           return DRIVER(cuMulticastAddDevice)(object, device(in));
         }),
    CALL(cuMulticastBindMem,
         {
           const auto object = number(in);
           const auto memory = number(in);
           return DRIVER(cuMulticastBindMem)(object, 0, memory, 0, number(in), 0);
         }),
    CALL(cuMulticastBindAddr,
         {
           const auto object = number(in);
           const auto address = number(in);
           return DRIVER(cuMulticastBindAddr)(object, 0, address, number(in), 0);
         }),
    CALL(cuMulticastUnbind,
         {
           const auto object = number(in);
           const auto on = device(in);
           return DRIVER(cuMulticastUnbind)(object, on, 0, number(in));
         }),
};

}  // namespace

std::span<const Call> physical_calls() { return kCalls; }

}  // namespace vgpu::test
