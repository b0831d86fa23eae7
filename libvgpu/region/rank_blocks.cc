// Rank: idle blocks, leases and exports. Fallbacks for a region without an appendix: nothing is kept idle, nobody is asked.
#include "region.h"

namespace vgpu::region {

bool Rank::take_probe(unsigned, unsigned) { return true; }
void Rank::end_probe(unsigned) {}
bool Rank::lead_looking(unsigned) { return false; }
bool Rank::use_idle(unsigned, std::uint64_t) { return false; }
void Rank::add_idle(unsigned dev, std::uint64_t block_bytes) { release(dev, Kind::other, block_bytes); }
bool Rank::top_up_idle(unsigned, std::uint64_t) { return false; }
std::uint64_t Rank::idle(unsigned) const { return 0; }
std::uint64_t Rank::give_up_idle(unsigned) { return 0; }
void Rank::note_exported(unsigned, std::int64_t) {}
std::uint64_t Rank::exported_by_others(unsigned) const { return 0; }
void Rank::confirm(unsigned) {}

}  // namespace vgpu::region
