// Who encodes video on a device: each process whose encoder is in use has one session. Nobody captures frames.
#include <algorithm>

#include "simgpu/nvml/utilisation.h"

using namespace simgpu;

extern "C" {

nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *count, nvmlEncoderSessionInfo_t *out) {
  NVML_DEVICE(session, state, device);
  std::vector<nvmlEncoderSessionInfo_t> sessions;
  for (const Utilisation &row : utilisation_of(session, state)) {
    if (row.encoder == 0) continue;
    const auto number = static_cast<unsigned>(sessions.size() + 1);
    sessions.push_back({number, row.process.pid, 0, NVML_ENCODER_QUERY_H264, 1920, 1080, 30, 4000});
  }
  const bool asked = count != nullptr && *count == 0;
  nvmlReturn_t result;
  if (has_room(static_cast<unsigned>(sessions.size()), count, out, &result))
    std::copy(sessions.begin(), sessions.end(), out);
  // Unlike elsewhere it is no error to ask how many there are.
  return asked && result == NVML_ERROR_INSUFFICIENT_SIZE ? NVML_SUCCESS : result;
}

nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *count, nvmlFBCSessionInfo_t *out) {
  NVML_DEVICE(session, state, device);
  static_cast<void>(session);
  static_cast<void>(state);
  nvmlReturn_t result;
  has_room(0, count, out, &result);
  return result;
}

}  // extern "C"
