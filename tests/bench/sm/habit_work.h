// Programs for which a driver's habits matter more than what a launch costs.
#pragma once

#include <string>
#include <vector>

namespace bench {

//   capture ORDINAL NS     new kernels of 1 ms while another thread captures for so long; the longest launch, in ms
//   lazy ORDINAL COUNT     so many kernels of 1 ms that are launched once each; all of it, in ms
//   shapes ORDINAL UNTIL   a kernel of 1 to 20,000 blocks, at random
//   pairs ORDINAL COUNT    what so many pairs of events say about a kernel of 1 ms between them; the median, in ms
//   chain ORDINAL COUNT    the same with one event between two kernels
//
// False if it is none of these.
bool habit_work(const std::vector<std::string> &arguments);

}  // namespace bench
