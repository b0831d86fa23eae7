// Ours.
#include "region/region.h"

#include "../bench_region.h"
#include "scheme.h"

namespace bench {
namespace {

class RegionScheme final : public Scheme {
 public:
  explicit RegionScheme(const SchemeSetting &setting) : made_(setting.scratch, setting.limit) {}

  void attach(unsigned) override {
    check(vgpu::region::Region::attach(made_.directory(), vgpu::region::Trust::root_or_self, &region_));
    check(vgpu::region::Rank::attach(region_, &rank_));
  }
  bool reserve(std::uint64_t bytes) override {
    const vgpu::region::Grant grant = rank_.try_to_reserve(0, vgpu::region::Kind::data, bytes);
    if (grant == vgpu::region::Grant::refused) rank_.note_refusal(0);
    return grant == vgpu::region::Grant::granted;
  }
  void release(std::uint64_t bytes) override { rank_.release(0, vgpu::region::Kind::data, bytes); }
  std::uint64_t used() override { return rank_.memory_used(0); }
  Picture picture() override {
    vgpu::region::Snapshot snapshot;
    check(vgpu::region::Snapshot::read(made_.directory(), vgpu::region::Trust::root_or_self,
                                       vgpu::region::Detail::memory, &snapshot));
    Picture picture = {snapshot.device(0).memory_used, 0, snapshot.device(0).ranks_add_up};
    for (unsigned i = 0; i < snapshot.ranks(); ++i) picture.parts += snapshot.memory(i, 0, vgpu::region::Kind::data);
    return picture;
  }

 private:
  BenchRegion made_;
  vgpu::region::Region region_;
  vgpu::region::Rank rank_;
};

}  // namespace

std::unique_ptr<Scheme> make_region(const SchemeSetting &setting) { return std::make_unique<RegionScheme>(setting); }

}  // namespace bench
