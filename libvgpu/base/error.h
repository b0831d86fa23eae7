// What every other folder builds on: errors, clocks, locks, files, maps. It knows nothing of GPUs, jobs or Slurm and needs
// only libc. Everything includes it: its behaviour may be changed here alone only where its comments leave it open.
//
// This header: errors are values with a sentence. No exception, no allocation: libvgpu.so must not need libstdc++.
#pragma once

#include <cstdint>

namespace vgpu {

enum class Fault : std::uint8_t {
  none,
  invalid,      // the caller's request makes no sense
  system,       // a system call failed
  not_found,    // there is no such region
  exists,       // somebody else created it first
  symlink,      // a path component that must be a real file or directory is a link
  wrong_owner,  // the file belongs to somebody we do not trust
  writable,     // others than its owner may write it
  foreign,      // not one of our files
  older,        // layout of an older release
  newer,        // layout of a newer release
  truncated,    // the file is not the size its header promises
  corrupt,      // the header contradicts itself
  no_slot,      // every slot belongs to a live rank
  timeout,      // a deadline passed; nothing was changed
};

struct [[nodiscard]] Error {
  Fault fault = Fault::none;
  char text[320] = "";

  explicit operator bool() const { return fault != Fault::none; }
};

// "<what>: <why>; <remedy>". The text is cut, never overrun. Whoever prints it puts "vgpu: " before it.
__attribute__((format(printf, 2, 3))) Error make_error(Fault fault, const char *format, ...);

// Adds ": <strerror>" for the current errno.
__attribute__((format(printf, 1, 2))) Error system_error(const char *format, ...);

}  // namespace vgpu
