// A second entry to a function that no symbol leads to.
#pragma once

#if defined(__aarch64__)
#define HIDDEN_JUMP "b "
#else
#define HIDDEN_JUMP "jmp "
#endif

#define HIDDEN(function)    \
  void hidden_##function(); \
  asm(".text\nhidden_" #function ": " HIDDEN_JUMP #function "\n.previous");
