// Charges a batch of launches what it took, when the device is done with it: the time in which the job had work in
// flight, from the arrival of the batch's first launch, or what its stream had to do before that, to its last mark, as
// far as no other batch of the job was charged for it.
//
// That is what the share is about, the time in which any kernel of the job runs, as long as the device was never idle
// in between. It was not if the host was ahead of the device at the end. Otherwise (a program that launches more slowly
// than the device works) a batch is charged at most what its launches cost one by one.
#pragma once

#include "meter.h"

namespace vgpu::sm {

// When the device was done with a batch, on the host's clock (device_clock.h).
struct BatchEnd {
  std::uint64_t at_ns = 0;
  // How much later than the host's call the device came to the last mark: how much work it still had then.
  std::uint64_t behind_ns = 0;
  // When the device came to the mark before the first launch. 0: there are no marks, but a synchronisation that returned.
  std::uint64_t started_ns = 0;
};

// True: so much is given back that waiting threads should ask again at once.
bool settle(const JobDevice &job, Meter &meter, Costs &costs, const Batch &batch, const BatchEnd &end,
            std::uint32_t percent);

}  // namespace vgpu::sm
