// A directory for a test, with everything in it for as long as the test lives.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace vgpu::test {

class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    // A tmpfs if there is one, as on a real node. check.sh names one that it clears away whatever happens.
    const char *parent = std::getenv("VGPU_TEST_DIR");
    if (parent == nullptr) parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    path_ = std::string(parent) + "/vgpu-test-XXXXXX";
    if (mkdtemp(path_.data()) == nullptr) std::abort();
    chmod(path_.c_str(), 0755);
  }
  // A simulated node that ends at this moment removes its own files: whatever was not found is looked for again.
  ~TemporaryDirectory() {
    std::error_code error;
    do {
      std::filesystem::remove_all(path_, error);
    } while (error == std::errc::no_such_file_or_directory);
  }
  TemporaryDirectory(const TemporaryDirectory &) = delete;
  TemporaryDirectory &operator=(const TemporaryDirectory &) = delete;

  const std::string &path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace vgpu::test
