// A client that does what the lines on its standard input say and answers each with a result code and values.
//   ctx D | popctx           alloc N | free P | async N | asyncfree P | sync
//   fill P V N | peek P      ipcget P | ipcopen HEX | ipcclose P
//   create N | map H N | release H                    listen PATH | sendhandle PATH H | recvhandle
//   poolnew | poolalloc POOL N | sendpool PATH POOL | recvpool
//   exportptr P | importptr POOL HEX                  info | module | fork | forkcheck | devices | exec | pid | storm N
//   flood N                  repeat N TIMES           launch TIME COUNT | query | spin TIME
#include <cuda.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>

namespace {

std::string hex(const void *data, size_t n) {
  std::string out;
  char two[3];
  for (size_t i = 0; i < n; i++) {
    snprintf(two, sizeof two, "%02x", static_cast<const unsigned char *>(data)[i]);
    out += two;
  }
  return out;
}

void unhex(const std::string &text, void *data, size_t n) {
  for (size_t i = 0; i < n && 2 * i + 1 < text.size(); i++)
    static_cast<unsigned char *>(data)[i] = static_cast<unsigned char>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
}

// "10us" in nanoseconds.
unsigned long long nanoseconds(const std::string &time) {
  size_t unit = 0;
  const unsigned long long number = std::stoull(time, &unit);
  return number * (time.substr(unit) == "us" ? 1'000 : time.substr(unit) == "ms" ? 1'000'000 : 1'000'000'000);
}

// The simulated GPU goes by its name; another one waits for its own clock.
CUresult timed_kernel(const std::string &time, CUfunction *function) {
  std::string name = "kernel_" + time;
  std::string ptx =
      ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry " + name +
      "()\n{\n  .reg .pred %p;\n  .reg .u64 %now, %end;\n  mov.u64 %end, %globaltimer;\n  add.u64 %end, %end, " +
      std::to_string(nanoseconds(time)) +
      ";\nagain:\n  mov.u64 %now, %globaltimer;\n  setp.lt.u64 %p, %now, %end;\n  @%p bra again;\n  ret;\n}\n";
  CUmodule module;
  CUresult result = cuModuleLoadData(&module, ptx.c_str());
  return result == CUDA_SUCCESS ? cuModuleGetFunction(function, module, name.c_str()) : result;
}

sockaddr_un address_of(const std::string &path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
  return address;
}

void send_fd(const std::string &path, int fd) {
  int s = socket(AF_UNIX, SOCK_DGRAM, 0);
  sockaddr_un address = address_of(path);
  char byte = 'f';
  iovec io{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_name = &address;
  message.msg_namelen = sizeof address;
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr *c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(c), &fd, sizeof fd);
  if (sendmsg(s, &message, 0) < 0) perror("sendmsg");
  close(s);
}

int g_listen = -1;

int receive_fd() {
  char byte;
  iovec io{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &io;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(g_listen, &message, 0) < 0) return -1;
  int fd = -1;
  if (cmsghdr *c = CMSG_FIRSTHDR(&message)) memcpy(&fd, CMSG_DATA(c), sizeof fd);
  return fd;
}

const char kPtx[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n.global .align 4 .b8 table[4096];\n"
    ".visible .entry nothing()\n{\n  ret;\n}\n";

// Maps a physical handle and makes it usable; answers its address.
CUresult map(CUmemGenericAllocationHandle handle, size_t n, CUdeviceptr *p) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  CUresult result = cuMemAddressReserve(p, n, 0, 0, 0);
  if (result == CUDA_SUCCESS) result = cuMemMap(*p, n, 0, handle, 0);
  if (result == CUDA_SUCCESS) result = cuMemSetAccess(*p, n, &access, 1);
  return result;
}

CUresult run(std::istringstream &in, std::ostringstream &out) {
  std::string verb, text;
  unsigned long long p = 0, n = 0, h = 0;
  int d = 0;
  in >> verb;
  if (verb == "init") return cuInit(0);
  if (verb == "ctx") {
    CUcontext context;
    in >> d;
    CUresult result = cuInit(0);
    return result != CUDA_SUCCESS ? result : cuCtxCreate_v2(&context, 0, d);
  }
  if (verb == "popctx") {
    CUcontext context;
    CUresult result = cuCtxGetCurrent(&context);
    return result != CUDA_SUCCESS ? result : cuCtxDestroy_v2(context);
  }
  if (verb == "alloc" || verb == "async") {
    CUdeviceptr address = 0;
    in >> n;
    CUresult result = verb == "alloc" ? cuMemAlloc_v2(&address, n) : cuMemAllocAsync(&address, n, nullptr);
    out << ' ' << address;
    return result;
  }
  if (verb == "free") return in >> p, cuMemFree_v2(p);
  if (verb == "asyncfree") return in >> p, cuMemFreeAsync(p, nullptr);
  if (verb == "sync") return cuCtxSynchronize();
  if (verb == "fill") return in >> p >> d >> n, cuMemsetD8_v2(p, static_cast<unsigned char>(d), n);
  if (verb == "peek") {
    unsigned char byte = 0;
    in >> p;
    CUresult result = cuMemcpyDtoH_v2(&byte, p, 1);
    out << ' ' << int{byte};
    return result;
  }
  if (verb == "ipcget") {
    CUipcMemHandle handle;
    in >> p;
    CUresult result = cuIpcGetMemHandle(&handle, p);
    out << ' ' << hex(&handle, sizeof handle);
    return result;
  }
  if (verb == "ipcopen") {
    CUipcMemHandle handle{};
    CUdeviceptr address = 0;
    in >> text;
    unhex(text, &handle, sizeof handle);
    CUresult result = cuIpcOpenMemHandle_v2(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    out << ' ' << address;
    return result;
  }
  if (verb == "ipcclose") return in >> p, cuIpcCloseMemHandle(p);
  if (verb == "create") {
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemGenericAllocationHandle handle = 0;
    in >> n;
    CUresult result = cuMemCreate(&handle, n, &properties, 0);
    out << ' ' << handle;
    return result;
  }
  if (verb == "map") {
    CUdeviceptr address = 0;
    in >> h >> n;
    CUresult result = map(h, n, &address);
    out << ' ' << address;
    return result;
  }
  if (verb == "release") return in >> h, cuMemRelease(h);
  if (verb == "listen") {
    in >> text;
    g_listen = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = address_of(text);
    unlink(text.c_str());
    return bind(g_listen, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0 ? CUDA_SUCCESS
                                                                                       : CUDA_ERROR_UNKNOWN;
  }
  if (verb == "sendhandle" || verb == "sendpool") {
    int fd = -1;
    in >> text >> h;
    CUresult result = verb == "sendhandle"
                          ? cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)
                          : cuMemPoolExportToShareableHandle(&fd, reinterpret_cast<CUmemoryPool>(h),
                                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (result == CUDA_SUCCESS) send_fd(text, fd);
    close(fd);
    return result;
  }
  if (verb == "recvhandle") {
    CUmemGenericAllocationHandle handle = 0;
    int fd = receive_fd();
    CUresult result = cuMemImportFromShareableHandle(&handle, reinterpret_cast<void *>(static_cast<intptr_t>(fd)),
                                                     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    close(fd);
    out << ' ' << handle;
    return result;
  }
  if (verb == "recvpool") {
    CUmemoryPool pool = nullptr;
    int fd = receive_fd();
    CUresult result = cuMemPoolImportFromShareableHandle(&pool, reinterpret_cast<void *>(static_cast<intptr_t>(fd)),
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    close(fd);
    out << ' ' << reinterpret_cast<unsigned long long>(pool);
    return result;
  }
  if (verb == "poolnew") {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CUmemoryPool pool = nullptr;
    CUresult result = cuMemPoolCreate(&pool, &properties);
    out << ' ' << reinterpret_cast<unsigned long long>(pool);
    return result;
  }
  if (verb == "poolalloc") {
    CUdeviceptr address = 0;
    in >> h >> n;
    CUresult result = cuMemAllocFromPoolAsync(&address, n, reinterpret_cast<CUmemoryPool>(h), nullptr);
    out << ' ' << address;
    return result;
  }
  if (verb == "exportptr") {
    CUmemPoolPtrExportData data;
    in >> p;
    CUresult result = cuMemPoolExportPointer(&data, p);
    out << ' ' << hex(&data, sizeof data);
    return result;
  }
  if (verb == "importptr") {
    CUmemPoolPtrExportData data{};
    CUdeviceptr address = 0;
    in >> h >> text;
    unhex(text, &data, sizeof data);
    CUresult result = cuMemPoolImportPointer(&address, reinterpret_cast<CUmemoryPool>(h), &data);
    out << ' ' << address;
    return result;
  }
  if (verb == "info") {
    size_t free = 0, total = 0;
    CUresult result = cuMemGetInfo_v2(&free, &total);
    out << ' ' << free << ' ' << total;
    return result;
  }
  if (verb == "module") {
    CUmodule module = nullptr;
    return cuModuleLoadData(&module, kPtx);
  }
  if (verb == "devices") {
    int count = 0;
    CUresult result = cuInit(0);
    if (result == CUDA_SUCCESS) result = cuDeviceGetCount(&count);
    for (d = 0; d < count; d++) {
      char name[64];
      cuDeviceGetName(name, sizeof name, d);
      out << (d == 0 ? ' ' : '+') << name;
    }
    return result;
  }
  if (verb == "closefds") return close_range(3, ~0u, 0) == 0 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
  if (verb == "exec") {
    execlp("sleep", "sleep", "1000", nullptr);
    return CUDA_ERROR_UNKNOWN;
  }
  if (verb == "pid") {
    out << ' ' << getpid();
    return CUDA_SUCCESS;
  }
  if (verb == "fork") {
    // The child sleeps and holds whatever it inherited.
    pid_t child = fork();
    if (child == 0) {
      for (;;) pause();
    }
    out << ' ' << child;
    return CUDA_SUCCESS;
  }
  if (verb == "forkcheck") {
    // What a forked child gets from the driver.
    pid_t child = fork();
    if (child == 0) {
      CUdeviceptr address;
      _exit(static_cast<int>(cuMemAlloc_v2(&address, 1)));
    }
    int status = 0;
    waitpid(child, &status, 0);
    out << ' ' << (WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    return CUDA_SUCCESS;
  }
  if (verb == "launch" || verb == "spin") {
    // Kernels that take a given time: so many, or one after the other until the client is killed.
    std::string time;
    unsigned count = 0;
    in >> time >> count;
    CUfunction function;
    CUresult result = timed_kernel(time, &function);
    auto launch = [function] { return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr); };
    for (unsigned i = 0; verb == "launch" && i < count && result == CUDA_SUCCESS; i++) result = launch();
    if (verb == "launch" || result != CUDA_SUCCESS) return result;
    std::cout << "0" << std::endl;
    while (launch() == CUDA_SUCCESS) cuCtxSynchronize();
  }
  if (verb == "query") return cuStreamQuery(nullptr);
  if (verb == "flood") {
    // Asks for what it cannot have, again and again, until it is killed.
    in >> n;
    std::cout << "0" << std::endl;
    for (CUdeviceptr address;;)
      if (cuMemAlloc_v2(&address, n) == CUDA_SUCCESS) cuMemFree_v2(address);
  }
  if (verb == "repeat") {
    // Allocates and frees; answers how often it was refused at once, that is before the 50 ms that the driver waits for
    // somebody who is half-way: on a loaded machine such a one may well be off its processor for that long.
    unsigned times = 0, failed = 0;
    in >> n >> times;
    for (unsigned i = 0; i < times; i++) {
      CUdeviceptr address;
      auto start = std::chrono::steady_clock::now();
      if (cuMemAlloc_v2(&address, n) == CUDA_SUCCESS)
        cuMemFree_v2(address);
      else if (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(45))
        failed++;
      usleep(300 + i % 16 * 50);  // lets the others get into their stride again
    }
    out << ' ' << failed;
    return CUDA_SUCCESS;
  }
  if (verb == "storm") {
    // Allocates and frees as fast as it can until it is killed.
    in >> n;
    std::cout << "0" << std::endl;
    for (unsigned i = 0;; i++) {
      CUdeviceptr address[4];
      for (unsigned k = 0; k < 4; k++)
        if (cuMemAlloc_v2(&address[k], 1 + (i * 7919 + k * 104729) % n) != CUDA_SUCCESS) address[k] = 0;
      for (CUdeviceptr a : address)
        if (a != 0) cuMemFree_v2(a);
    }
  }
  return CUDA_ERROR_UNKNOWN;
}

}  // namespace

int main() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream in(line);
    std::ostringstream out;
    CUresult result = run(in, out);
    std::cout << static_cast<int>(result) << out.str() << std::endl;
  }
  return 0;
}
