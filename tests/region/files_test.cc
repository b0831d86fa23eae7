// Region files: created whole, refused with a sentence when anything about them is wrong.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#include "region/files.h"
#include "region/own_filesystem.h"
#include "support.h"

namespace vgpu::test {

using namespace region;
namespace {

namespace fs = std::filesystem;

constexpr uid_t kOtherUser = 65534;  // nobody

class FilesTest : public RegionTest {
 protected:
  void SetUp() override { create(2, 64 * kMiB); }

  Error attach_error(Trust trust = Trust::root_or_self) {
    Region region;
    return Region::attach(path().c_str(), trust, &region);
  }
  void expect_refused(Fault fault, const char *words) {
    const Error error = attach_error();
    EXPECT_EQ(error.fault, fault) << error.text;
    EXPECT_NE(std::strstr(error.text, words), nullptr) << error.text;
    EXPECT_NE(std::strncmp(error.text, "vgpu: ", 6), 0) << error.text;
    Snapshot snapshot;
    EXPECT_EQ(Snapshot::read(path().c_str(), Trust::root_or_self, Detail::memory, &snapshot).fault, fault);
  }
  // Overwrites bytes of a file in place.
  template <typename T>
  void patch(const char *name, std::size_t offset, const T &value) {
    const ScopedFd fd(open((path() + "/" + name).c_str(), O_WRONLY));
    ASSERT_EQ(pwrite(fd.get(), &value, sizeof value, static_cast<off_t>(offset)), static_cast<ssize_t>(sizeof value));
  }
  std::string file(const char *name) const { return path() + "/" + name; }
  static bool is_root() { return geteuid() == 0; }
};

TEST_F(FilesTest, AFreshRegionIsWhatWasAskedFor) {
  EXPECT_EQ(region_.ndev(), 2u);
  EXPECT_EQ(region_.job().job_id, 7u);
  EXPECT_EQ(region_.memory_limit(1), 64 * kMiB);
  EXPECT_EQ(region_.device(1).sm_percent.load(), 100u);
  EXPECT_STREQ(region_.device(1).identity.uuid, "GPU-00000001");
  EXPECT_EQ(region_.memory_used(0), 0u);
  struct stat status;
  ASSERT_EQ(stat(file("limits").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0644u);
  ASSERT_EQ(stat(file("usage").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_GE(static_cast<std::size_t>(status.st_blocks) * 512, usage_size(2))
      << "blocks must be there before a rank runs";
}

// Its owner can write it, and would use up the room of others.
TEST_F(FilesTest, UsageMayHaveAFileSystemOfItsOwn) {
  if (!is_root()) GTEST_SKIP() << "only root can mount";
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(77);
    const std::vector<DeviceSpec> devices = make_devices(2, kMiB);
    RegionSpec spec = make_spec(devices);
    spec.own_room = true;
    const std::string other = directory_.path() + "/8";
    if (Region::create(directory_.path().c_str(), "8", spec)) _exit(1);
    struct stat limits;
    struct stat usage;
    if (stat((other + "/limits").c_str(), &limits) != 0 || stat((other + "/usage").c_str(), &usage) != 0) _exit(2);
    if (limits.st_dev == usage.st_dev || fs::exists(other + "/.room")) _exit(3);
    Region region;
    Rank rank;
    if (Region::attach(other.c_str(), Trust::root_or_self, &region) || Rank::attach(region, &rank)) _exit(4);
    const ScopedFd fd(open((other + "/usage").c_str(), O_WRONLY | O_CLOEXEC));
    const std::string megabyte(kMiB, 'x');
    // An emulator's pages may be larger than the kernel's: then less than one of them is left.
    if (pwrite(fd.get(), megabyte.data(), megabyte.size(), usage.st_size + 65536) >= sysconf(_SC_PAGESIZE)) _exit(5);
    if (ftruncate(fd.get(), usage.st_size) != 0) _exit(6);
    // Where it is not mounted, nothing can be counted.
    umount2((other + "/usage").c_str(), MNT_DETACH);
    Region late;
    if (stat((other + "/usage").c_str(), &usage) != 0 || !is_uncovered(usage)) _exit(7);
    if (!Region::attach(other.c_str(), Trust::root_or_self, &late)) _exit(8);
    if (rank.try_to_reserve(0, Kind::data, 512) != Grant::granted) _exit(9);  // whoever has it keeps it
    if (Region::remove(directory_.path().c_str(), "8") || Region::create(directory_.path().c_str(), "8", spec))
      _exit(10);
    if (Region::remove(directory_.path().c_str(), "8") || fs::exists(other)) _exit(11);
    _exit(0);
  }
  const int status = WEXITSTATUS(wait_for(child));
  if (status == 77) GTEST_SKIP() << "mount namespaces are not permitted here";
  EXPECT_EQ(status, 0);
}

TEST_F(FilesTest, TheUmaskDoesNotMatter) {
  const mode_t before = umask(0777);
  const std::vector<DeviceSpec> devices = make_devices(1, kMiB);
  const Error error = Region::create(directory_.path().c_str(), "8", make_spec(devices));
  umask(before);
  EXPECT_FALSE(error) << error.text;
  Region region;
  EXPECT_FALSE(Region::attach((directory_.path() + "/8").c_str(), Trust::root_or_self, &region));
}

TEST_F(FilesTest, RanksCannotRaiseTheirLimits) {
  // Not even root's own mapping is writable: a store must die, not count.
  const pid_t child = spawn([&] {
    const_cast<Word &>(region_.device(0).memory_bytes).store(1);
    return 0;
  });
  const int status = wait_for(child);
  EXPECT_TRUE(WIFSIGNALED(status) || !exited_with(status, 0));
  EXPECT_EQ(region_.memory_limit(0), 64 * kMiB);
}

TEST_F(FilesTest, ASecondCreatorIsToldAndHarmsNothing) {
  Rank rank;
  ASSERT_FALSE(Rank::attach(region_, &rank));
  ASSERT_EQ(reserve(rank, 0, Kind::data, kMiB), Grant::granted);
  const std::vector<DeviceSpec> devices = make_devices(1, kMiB);
  EXPECT_EQ(Region::create(directory_.path().c_str(), "7", make_spec(devices)).fault, Fault::exists);
  EXPECT_EQ(region_.memory_used(0), kMiB);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory_.path()), {}), 1) << "a temporary directory was left";
}

TEST_F(FilesTest, ManyCreatorsLeaveOneValidRegion) {
  for (int round = 0; round < 20; ++round) {
    const std::string name = "race" + std::to_string(round);
    std::vector<pid_t> children;
    for (int i = 0; i < 8; ++i) {
      children.push_back(spawn([&] {
        const std::vector<DeviceSpec> devices = make_devices(2, kMiB);
        const Error error = Region::create(directory_.path().c_str(), name.c_str(), make_spec(devices));
        Region region;
        const bool attached = !Region::attach((directory_.path() + "/" + name).c_str(), Trust::root_or_self, &region);
        return (attached ? 0 : 10) + (error ? (error.fault == Fault::exists ? 1 : 2) : 0);
      }));
    }
    int winners = 0;
    for (const pid_t child : children) {
      const int status = wait_for(child);
      winners += exited_with(status, 0);
      EXPECT_TRUE(exited_with(status, 0) || exited_with(status, 1)) << WEXITSTATUS(status);
    }
    EXPECT_EQ(winners, 1);
  }
}

TEST_F(FilesTest, RemoveLeavesNothingAndTheSameNameStartsClean) {
  Rank survivor;
  ASSERT_FALSE(Rank::attach(region_, &survivor));
  ASSERT_EQ(reserve(survivor, 0, Kind::data, kMiB), Grant::granted);
  EXPECT_FALSE(Region::remove(directory_.path().c_str(), "7"));
  EXPECT_TRUE(fs::is_empty(directory_.path()));
  EXPECT_FALSE(Region::remove(directory_.path().c_str(), "7")) << "a missing region is not an error";

  const std::vector<DeviceSpec> devices = make_devices(1, kMiB);
  ASSERT_FALSE(Region::create(directory_.path().c_str(), "7", make_spec(devices)));
  Region fresh;
  attach(&fresh);
  EXPECT_EQ(fresh.memory_used(0), 0u);
  // The survivor goes on in its own, old mapping.
  EXPECT_EQ(reserve(survivor, 0, Kind::data, kMiB), Grant::granted);
  EXPECT_EQ(fresh.memory_used(0), 0u);
}

// ---- what is refused at creation ------------------------------------------------------------------------------------

TEST_F(FilesTest, BadSpecificationsAreRefused) {
  const auto refuse = [&](const char *name, const RegionSpec &spec) {
    const Error error = Region::create(directory_.path().c_str(), name, spec);
    EXPECT_EQ(error.fault, Fault::invalid) << name << ": " << error.text;
  };
  const std::vector<DeviceSpec> good = make_devices(kMaxDevices, kMiB);
  for (const char *name : {"", ".", "..", ".hidden", "a/b", "/abs"}) refuse(name, make_spec(good));
  refuse(std::string(300, 'x').c_str(), make_spec(good));
  RegionSpec spec = make_spec(good);
  spec.ndev = 0;
  refuse("9", spec);
  spec.ndev = kMaxDevices + 1;
  refuse("9", spec);
  for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{511}, bytes_of(kMaxUnits + 1)}) {
    refuse("9", make_spec(make_devices(1, limit)));
  }
  for (const std::uint32_t percent : {0u, 101u}) {
    std::vector<DeviceSpec> devices = make_devices(1, kMiB);
    devices[0].sm_percent = percent;
    refuse("9", make_spec(devices));
  }
  EXPECT_FALSE(Region::create(directory_.path().c_str(), "64", make_spec(good)));
}

TEST_F(FilesTest, AnUnsafeParentIsRefused) {
  const std::vector<DeviceSpec> devices = make_devices(1, kMiB);
  chmod(directory_.path().c_str(), 0777);
  EXPECT_EQ(Region::create(directory_.path().c_str(), "9", make_spec(devices)).fault, Fault::writable);
  chmod(directory_.path().c_str(), 0755);
  if (!is_root()) GTEST_SKIP() << "needs root";
  ASSERT_EQ(chown(directory_.path().c_str(), kOtherUser, kOtherUser), 0);
  EXPECT_EQ(Region::create(directory_.path().c_str(), "9", make_spec(devices)).fault, Fault::wrong_owner);
}

TEST_F(FilesTest, AFullFilesystemIsSeenAtCreation) {
  if (!is_root()) GTEST_SKIP() << "needs root to mount a tmpfs";
  const pid_t child = spawn([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    const std::string small = directory_.path() + "/small";
    mkdir(small.c_str(), 0755);
    if (mount("tmpfs", small.c_str(), "tmpfs", 0, "size=64k,mode=0755") != 0) return 77;
    const std::vector<DeviceSpec> devices = make_devices(1, kMiB);
    const Error error = Region::create(small.c_str(), "9", make_spec(devices));
    if (error.fault != Fault::system || std::strstr(error.text, "No space") == nullptr) return 1;
    return fs::is_empty(small) ? 0 : 2;
  });
  const int status = wait_for(child);
  if (exited_with(status, 77)) GTEST_SKIP() << "no mount namespaces here";
  EXPECT_TRUE(exited_with(status, 0)) << status;
}

// ---- what is refused at attach --------------------------------------------------------------------------------------

TEST_F(FilesTest, MissingRegion) {
  Region region;
  const Error error = Region::attach((directory_.path() + "/none").c_str(), Trust::root_or_self, &region);
  EXPECT_EQ(error.fault, Fault::not_found);
  fs::remove(file("usage"));
  expect_refused(Fault::not_found, "usage");
}

TEST_F(FilesTest, TooLongAPath) {
  Region region;
  EXPECT_EQ(Region::attach(std::string(300, 'x').c_str(), Trust::root_or_self, &region).fault, Fault::invalid);
}

TEST_F(FilesTest, TruncatedFiles) {
  for (const char *name : {"limits", "usage"}) {
    const auto size = fs::file_size(file(name));
    // Longer first: once the header is cut off, its bytes are gone for good.
    for (const std::uintmax_t other :
         {size + 1, size - 1, size / 2, std::uintmax_t{64}, std::uintmax_t{63}, std::uintmax_t{0}}) {
      fs::resize_file(file(name), other);
      expect_refused(Fault::truncated, name);
    }
    ASSERT_FALSE(Region::remove(directory_.path().c_str(), "7"));
    create(2, 64 * kMiB);
  }
}

TEST_F(FilesTest, ForeignFiles) {
  patch("usage", 0, "GIF89a!");
  expect_refused(Fault::foreign, "usage");
  patch("limits", 0,
        "\x7f"
        "ELF123");
  expect_refused(Fault::foreign, "limits");
}

TEST_F(FilesTest, SwappedFiles) {
  fs::rename(file("limits"), file("tmp"));
  fs::copy_file(file("usage"), file("limits"));
  expect_refused(Fault::foreign, "limits");
}

TEST_F(FilesTest, NewerAndOlderLayouts) {
  for (const char *name : {"usage", "limits"}) {
    patch(name, offsetof(FileHeader, layout), kLayoutVersion + 1);
    expect_refused(Fault::newer, "update libvgpu");
    patch(name, offsetof(FileHeader, layout), kOldestLayout - 1);
    expect_refused(Fault::older, "before the update");
    patch(name, offsetof(FileHeader, layout), kOldestLayout);
    expect_refused(Fault::corrupt, "");
    patch(name, offsetof(FileHeader, layout), kLayoutVersion);
  }
  EXPECT_FALSE(attach_error());
}

TEST_F(FilesTest, CorruptedHeaders) {
  struct {
    std::size_t offset;
    std::uint32_t value;
  } const cases[] = {{offsetof(FileHeader, ndev), 0},     {offsetof(FileHeader, ndev), 65},
                     {offsetof(FileHeader, slots), 511},  {offsetof(FileHeader, id), 0xdeadbeef},
                     {offsetof(FileHeader, checksum), 1}, {offsetof(FileHeader, created), 12}};
  for (const char *name : {"limits", "usage"}) {
    for (const auto &[offset, value] : cases) {
      std::uint32_t before;
      {
        const ScopedFd fd(open(file(name).c_str(), O_RDONLY));
        ASSERT_EQ(pread(fd.get(), &before, sizeof before, static_cast<off_t>(offset)), 4);
      }
      patch(name, offset, value);
      expect_refused(Fault::corrupt, name);
      patch(name, offset, before);
    }
  }
  EXPECT_FALSE(attach_error());
}

TEST_F(FilesTest, CorruptedIdentities) {
  patch("limits", offsetof(LimitsFile, job), std::uint64_t{8});
  expect_refused(Fault::corrupt, "checksum");
  patch("limits", offsetof(LimitsFile, job), std::uint64_t{7});
  EXPECT_FALSE(attach_error());
  patch("limits", offsetof(LimitsFile, devices) + sizeof(DeviceLimits) + offsetof(DeviceLimits, identity), 'X');
  expect_refused(Fault::corrupt, "checksum");
}

TEST_F(FilesTest, FilesOfAnotherRegion) {
  const std::vector<DeviceSpec> devices = make_devices(2, kMiB);
  ASSERT_FALSE(Region::create(directory_.path().c_str(), "8", make_spec(devices)));
  fs::copy_file(directory_.path() + "/8/usage", file("usage"), fs::copy_options::overwrite_existing);
  expect_refused(Fault::corrupt, "does not belong");
}

TEST_F(FilesTest, SymbolicLinks) {
  fs::rename(file("usage"), file("real"));
  fs::create_symlink("real", file("usage"));
  expect_refused(Fault::symlink, "usage");
  fs::remove(file("usage"));
  fs::rename(file("real"), file("usage"));

  fs::rename(path(), directory_.path() + "/real");
  fs::create_symlink("real", path());
  expect_refused(Fault::symlink, "7");
}

TEST_F(FilesTest, OtherThingsInTheirPlace) {
  fs::remove(file("usage"));
  ASSERT_EQ(mkfifo(file("usage").c_str(), 0600), 0);
  expect_refused(Fault::foreign, "regular file");
  fs::remove(file("usage"));
  fs::create_directory(file("usage"));
  EXPECT_TRUE(attach_error());
}

TEST_F(FilesTest, WritableByOthers) {
  for (const char *name : {"limits", "usage", ""}) {
    for (const unsigned mode : {0666u, 0620u}) {
      const std::string what = path() + "/" + name;
      struct stat status;
      ASSERT_EQ(stat(what.c_str(), &status), 0);
      chmod(what.c_str(), mode | (S_ISDIR(status.st_mode) ? 0111 : 0));
      expect_refused(Fault::writable, "others");
      chmod(what.c_str(), status.st_mode & 0777);
    }
  }
  EXPECT_FALSE(attach_error());
}

TEST_F(FilesTest, WrongOwners) {
  if (!is_root()) GTEST_SKIP() << "needs root to give files away";
  for (const char *name : {"", "/limits", "/usage"}) {
    const std::string what = path() + name;
    ASSERT_EQ(chown(what.c_str(), kOtherUser, kOtherUser), 0);
    expect_refused(Fault::wrong_owner, "uid 65534");
    ASSERT_EQ(chown(what.c_str(), 0, 0), 0);
  }
  EXPECT_FALSE(attach_error());
}

TEST_F(FilesTest, OnlyRootsRegionsWhenOnlyRootIsTrusted) {
  if (is_root()) {
    // As another user for himself: fine with root_or_self, refused inside a job.
    const pid_t child = spawn([&] {
      TemporaryDirectory own;
      if (chown(own.path().c_str(), kOtherUser, kOtherUser) != 0 || setuid(kOtherUser) != 0) return 3;
      const std::vector<DeviceSpec> devices = make_devices(1, kMiB);
      if (Region::create(own.path().c_str(), "1", make_spec(devices))) return 4;
      Region region;
      const std::string made = own.path() + "/1";
      if (Region::attach(made.c_str(), Trust::root_or_self, &region)) return 5;
      const Error error = Region::attach(made.c_str(), Trust::root, &region);
      if (Region::remove(own.path().c_str(), "1")) return 7;
      return error.fault == Fault::wrong_owner ? 0 : 6;
    });
    EXPECT_EQ(WEXITSTATUS(wait_for(child)), 0);
  } else {
    EXPECT_EQ(attach_error(Trust::root).fault, Fault::wrong_owner);
  }
}

TEST_F(FilesTest, AUserAttachesToWhatRootMadeForHim) {
  if (!is_root()) GTEST_SKIP() << "needs root to make a region for another user";
  const std::vector<DeviceSpec> devices = make_devices(1, kMiB);
  RegionSpec spec = make_spec(devices);
  spec.uid = kOtherUser;
  ASSERT_FALSE(Region::create(directory_.path().c_str(), "8", spec));
  const std::string made = directory_.path() + "/8";
  const auto as_user = [&](uid_t user) {
    const pid_t child = spawn([&] {
      if (setuid(user) != 0) return 3;
      Region region;
      if (Error error = Region::attach(made.c_str(), Trust::root, &region)) return 4;
      Rank rank;
      if (Rank::attach(region, &rank)) return 5;
      if (reserve(rank, 0, Kind::data, kMiB) != Grant::granted) return 6;
      if (truncate((made + "/limits").c_str(), 0) == 0 || unlink((made + "/usage").c_str()) == 0) return 7;
      return 0;
    });
    return WEXITSTATUS(wait_for(child));
  };
  EXPECT_EQ(as_user(kOtherUser), 0);
  EXPECT_EQ(as_user(kOtherUser - 1), 4) << "a stranger must not attach";
}

// In a user namespace a user looks like root to himself, and root like nobody.
TEST_F(FilesTest, OwnersAreWhatTheyAreOutsideAUserNamespace) {
  SKIP_IF_EMULATED("only a process without threads enters a user namespace, and the emulator has one of its own");
  if (!is_root()) GTEST_SKIP() << "needs root to make a region for another user";
  const std::vector<DeviceSpec> devices = make_devices(1, kMiB);
  RegionSpec spec = make_spec(devices);
  spec.uid = kOtherUser;
  ASSERT_FALSE(Region::create(directory_.path().c_str(), "8", spec));
  TemporaryDirectory own;
  ASSERT_EQ(chown(own.path().c_str(), kOtherUser, kOtherUser), 0);
  const pid_t child = spawn([&] {
    if (setuid(kOtherUser) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0 || unshare(CLONE_NEWUSER) != 0) return 77;
    const auto write_to = [](const char *path, const char *text) {
      const ScopedFd fd(open(path, O_WRONLY));
      return write(fd.get(), text, std::strlen(text)) == static_cast<ssize_t>(std::strlen(text));
    };
    if (!write_to("/proc/self/uid_map", "0 65534 1")) return 77;
    if (geteuid() != 0) return 2;
    Region region;
    if (Region::attach((directory_.path() + "/8").c_str(), Trust::root, &region)) return 3;  // root's, for us
    RegionSpec forged = make_spec(devices);
    if (Region::create(own.path().c_str(), "1", forged)) return 4;
    const std::string made = own.path() + "/1";
    if (Region::attach(made.c_str(), Trust::root_or_self, &region)) return 5;
    if (Region::attach(made.c_str(), Trust::root, &region).fault != Fault::wrong_owner) return 6;
    return 0;
  });
  const int status = wait_for(child);
  if (exited_with(status, 77)) GTEST_SKIP() << "no user namespaces here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(FilesTest, RelativePathsAreRefused) {
  Region region;
  EXPECT_EQ(Region::attach("7", Trust::root_or_self, &region).fault, Fault::invalid);
}

TEST_F(FilesTest, OnlyRootMakesRegionsForOthers) {
  if (is_root()) GTEST_SKIP() << "root may";
  const std::vector<DeviceSpec> devices = make_devices(1, kMiB);
  RegionSpec spec = make_spec(devices);
  spec.uid = geteuid() + 1;
  EXPECT_EQ(Region::create(directory_.path().c_str(), "8", spec).fault, Fault::invalid);
}

}  // namespace
}  // namespace vgpu::test
