// Every hooked call, once for each argument that may be a null pointer, with nothing in its place. What a driver makes of
// that is its own business, and must be the same with the library before it.
#pragma once

namespace vgpu::test {

// A line for each: the symbol, the number of the argument, what it answered. Says what it is about to call first, so that
// a crash can be told.
int run_null_calls();

}  // namespace vgpu::test
