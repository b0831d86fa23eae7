// Kernels that take a time of their own, in PTX for the device at hand.
#pragma once

#include <string>

namespace tables {

// spin_5us, spin_200us, spin_20ms and spin_1s wait that long by the device's clock, and write when they began and ended to the
// 16 bytes that their one argument points to, unless it is 0. (A simulated device computes nothing; it takes the time from the
// name.) `empty` does nothing; `deep` needs 2 KiB of local memory in each thread.
std::string kernels();

}  // namespace tables
