// Which device of the region a CUDA ordinal or an NVML handle is, for every way of writing a UUID or a PCI address.
#include "runtime/devices.h"

#include <cstring>

#include "fake_driver.h"

namespace vgpu::test {

using namespace region;
using namespace runtime;
namespace {

// What the driver says about the device that is asked for next. Answers are kept per ordinal and per handle, so every
// question is about a fresh one.
struct Said {
  bool has_uuid, has_pci;
  CUuuid uuid;
  std::string nvml_uuid, pci;
};
Said said;

CUuuid uuid_of(const char *digits) {
  CUuuid uuid = {};
  int at = 0;
  for (const char *c = digits; *c != '\0' && at < 16; c += *c == '-' ? 1 : 2) {
    if (*c != '-') uuid.bytes[at++] = static_cast<char>(std::stoi(std::string(c, 2), nullptr, 16));
  }
  return uuid;
}

constexpr char kFirst[] = "0a1b2c3d-1111-2222-3333-444455556666";
constexpr char kSecond[] = "ffeeddcc-1111-2222-3333-444455556666";

class DevicesTest : public AttachedTest {
 protected:
  void SetUp() override {
    FAKE(
        cuDeviceGetUuid, (CUuuid * uuid, CUdevice)->CUresult { return say_uuid(uuid); });
    FAKE(
        cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice)->CUresult { return say_uuid(uuid); });
    FAKE(
        cuDeviceGetPCIBusId, (char *text, int length, CUdevice)->CUresult {
          if (!said.has_pci) return CUDA_ERROR_NOT_INITIALIZED;
          std::snprintf(text, static_cast<std::size_t>(length), "%s", said.pci.c_str());
          return CUDA_SUCCESS;
        });
    FAKE(
        nvmlDeviceGetUUID, (nvmlDevice_t, char *text, unsigned length)->nvmlReturn_t {
          if (!said.has_uuid) return NVML_ERROR_NOT_SUPPORTED;
          std::snprintf(text, length, "%s", said.nvml_uuid.c_str());
          return NVML_SUCCESS;
        });
    FAKE(
        nvmlDeviceGetPciInfo_v3, (nvmlDevice_t, nvmlPciInfo_t * info)->nvmlReturn_t {
          if (!said.has_pci) return NVML_ERROR_NOT_SUPPORTED;
          std::snprintf(info->busId, sizeof info->busId, "%s", said.pci.c_str());
          return NVML_SUCCESS;
        });
  }
  static CUresult say_uuid(CUuuid *uuid) {
    if (!said.has_uuid) return CUDA_ERROR_NOT_INITIALIZED;
    *uuid = said.uuid;
    return CUDA_SUCCESS;
  }
  static DeviceSpec device(const std::string &uuid, const char *pci) {
    DeviceSpec spec;
    std::snprintf(spec.identity.uuid, sizeof spec.identity.uuid, "%s", uuid.c_str());
    std::snprintf(spec.identity.pci_bus_id, sizeof spec.identity.pci_bus_id, "%s", pci);
    spec.memory_limit = kMiB;
    return spec;
  }

  int by_ordinal(const char *digits, const char *pci) {
    said = {digits != nullptr, pci != nullptr, uuid_of(digits != nullptr ? digits : ""), "", pci != nullptr ? pci : ""};
    return region_device(next_ordinal_++);
  }
  int by_handle(const char *uuid, const char *pci) {
    said = {uuid != nullptr, pci != nullptr, {}, uuid != nullptr ? uuid : "", pci != nullptr ? pci : ""};
    return region_device(reinterpret_cast<nvmlDevice_t>(static_cast<std::uintptr_t>(0x1000 + next_handle_++)));
  }

  // Answers are kept as long as the process lives: no number is used twice, and 0 is the other tests' only device.
  static inline CUdevice next_ordinal_ = 1;
  static inline unsigned next_handle_ = 0;
};

TEST_F(DevicesTest, ByUuid) {
  attach({device(std::string("GPU-") + kFirst, "0000:01:00.0"), device(std::string("GPU-") + kSecond, "0000:02:00.0")});
  EXPECT_EQ(by_ordinal(kFirst, "0000:01:00.0"), 0);
  EXPECT_EQ(by_ordinal(kSecond, "0000:02:00.0"), 1);
  EXPECT_EQ(by_ordinal(kSecond, nullptr), 1);
  EXPECT_EQ(by_handle("GPU-FFEEDDCC-1111-2222-3333-444455556666", nullptr), 1) << "as some print it";
  EXPECT_EQ(by_handle("GPU-0a1b2c3d-1111-2222-3333-444455556666", "00000000:01:00.0"), 0);
  EXPECT_EQ(by_ordinal("0a1b2c3d-1111-2222-3333-444455556667", nullptr), kNotInJob);
}

TEST_F(DevicesTest, TheUuidDecidesNotThePlace) {
  attach({device(std::string("GPU-") + kFirst, "0000:01:00.0"), device(std::string("GPU-") + kSecond, "0000:02:00.0")});
  EXPECT_EQ(by_ordinal(kSecond, "0000:01:00.0"), 1);
  EXPECT_EQ(by_ordinal("00000000-1111-2222-3333-444455556666", "0000:01:00.0"), kNotInJob)
      << "another part of the same MIG device";
}

TEST_F(DevicesTest, PartsOfADevice) {
  attach({device(std::string("MIG-") + kFirst, "0000:01:00.0"), device(std::string("MIG-") + kSecond, "0000:01:00.0")});
  EXPECT_EQ(by_ordinal(kSecond, "0000:01:00.0"), 1) << "CUDA does not say that it is one";
  EXPECT_EQ(by_handle("MIG-ffeeddcc-1111-2222-3333-444455556666", "00000000:01:00.0"), 1);
}

TEST_F(DevicesTest, ByPlace) {
  attach({device("", "0000:01:00.0"), device("", "00000000:0A:00.0"), device("", "00010000:0a:00.0")});
  EXPECT_EQ(by_ordinal(kFirst, "0000:01:00.0"), 0);
  EXPECT_EQ(by_ordinal(nullptr, "0000:0a:00.0"), 1);
  EXPECT_EQ(by_handle(nullptr, "00000000:0A:00.0"), 1);
  EXPECT_EQ(by_handle(nullptr, "00010000:0A:00.0"), 2);
  EXPECT_EQ(by_ordinal(nullptr, "10000:0a:00.0"), 2);
  EXPECT_EQ(by_ordinal(nullptr, "0000:0b:00.0"), kNotInJob);
  EXPECT_EQ(by_ordinal(nullptr, ""), kNotInJob);
}

TEST_F(DevicesTest, AnswersAreKept) {
  attach({device(std::string("GPU-") + kFirst, ""), device(std::string("GPU-") + kSecond, "")});
  const CUdevice ordinal = next_ordinal_;
  EXPECT_EQ(by_ordinal(kSecond, nullptr), 1);
  said.uuid = uuid_of(kFirst);
  EXPECT_EQ(region_device(ordinal), 1);
}

TEST_F(DevicesTest, ADriverThatIsNotReadyIsAskedAgain) {
  attach({device(std::string("GPU-") + kFirst, "")});
  const CUdevice ordinal = next_ordinal_;
  EXPECT_EQ(by_ordinal(nullptr, nullptr), kNotInJob);
  said.has_uuid = true;
  said.uuid = uuid_of(kFirst);
  EXPECT_EQ(region_device(ordinal), 0);
}

TEST_F(DevicesTest, NumbersThatAreNone) {
  attach({device(std::string("GPU-") + kFirst, "")});
  said.has_uuid = true;
  said.uuid = uuid_of(kFirst);
  EXPECT_EQ(region_device(-1), kNotInJob);
  EXPECT_EQ(region_device(static_cast<CUdevice>(kMaxDevices)), kNotInJob);
  EXPECT_EQ(region_device(nvmlDevice_t{nullptr}), kNotInJob);
}

// More handles than answers can be kept for: MIG devices come and go.
TEST_F(DevicesTest, MoreHandlesThanAnswers) {
  attach({device(std::string("GPU-") + kFirst, ""), device(std::string("GPU-") + kSecond, "")});
  for (unsigned i = 0; i < 3 * kMaxDevices; ++i) {
    const char *uuid =
        i % 2 == 0 ? "GPU-0a1b2c3d-1111-2222-3333-444455556666" : "GPU-ffeeddcc-1111-2222-3333-444455556666";
    EXPECT_EQ(by_handle(uuid, nullptr), static_cast<int>(i % 2));
  }
}

}  // namespace
}  // namespace vgpu::test
