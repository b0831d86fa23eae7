// Finds the definition of a function behind our own in the order in which the dynamic linker searches.
//
// We export dlsym and dlopen ourselves, so neither a reference nor dlsym can lead to the next ones. This walks the loaded
// objects' own hash tables: no malloc, nothing initialised, since allocators and sanitizers call dlsym before main.
#pragma once

namespace vgpu::driver {

// The first definition in an object after ours; if there is none (we were not preloaded), in any other object.
void *next_definition(const char *name);

// Whether the object with this code comes before ours: for such a caller, "next" is us.
bool precedes_us(const void *code);

// Whether this code is the program's own. It finds by name what the global scope has, and nothing else.
bool in_main_program(const void *code);

// Whether the object with this code calls itself so, whatever its file is called.
bool has_soname(const void *code, const char *soname);

}  // namespace vgpu::driver
