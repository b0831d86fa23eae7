// dlsym, dlvsym and dlopen as programs see them.
//
// The real functions look at their return address to learn who asks: RTLD_NEXT, RTLD_DEFAULT, RUNPATH and $ORIGIN depend
// on it. So these ask resolve.cc what to do and then either return its answer or jump to the real function with the
// caller's registers and return address untouched, as if we were not there.
//
// In the two that look symbols up, `caller` is the register of the last argument of vgpu_choose_*: the return address. They
// differ in nothing else.

#if defined(__x86_64__)

asm(R"(
        .text
        .macro  vgpu_lookup name, choose, caller
        .globl  \name
        .type   \name, @function
\name:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        pushq   %rdx
        .cfi_adjust_cfa_offset 8
        movq    24(%rsp), \caller
        call    \choose
        movq    %rdx, %rcx
        popq    %rdx
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        testq   %rcx, %rcx
        jnz     1f
        jmp     *%rax
1:      ret
        .cfi_endproc
        .size   \name, .-\name
        .endm

        vgpu_lookup dlsym, vgpu_choose_dlsym, %rdx
        vgpu_lookup dlvsym, vgpu_choose_dlvsym, %rcx

        .globl  dlopen
        .type   dlopen, @function
dlopen:
        .cfi_startproc
        endbr64
        pushq   %rdi
        .cfi_adjust_cfa_offset 8
        pushq   %rsi
        .cfi_adjust_cfa_offset 8
        subq    $8, %rsp
        .cfi_adjust_cfa_offset 8
        call    vgpu_choose_dlopen
        addq    $8, %rsp
        .cfi_adjust_cfa_offset -8
        popq    %rsi
        .cfi_adjust_cfa_offset -8
        popq    %rdi
        .cfi_adjust_cfa_offset -8
        andl    %edx, %esi
        jmp     *%rax
        .cfi_endproc
        .size   dlopen, .-dlopen
)");

#elif defined(__aarch64__)

asm(R"(
        .text
        .macro  vgpu_lookup name, choose, caller
        .globl  \name
        .type   \name, %function
\name:
        .cfi_startproc
        hint    #34
        stp     x29, x30, [sp, #-48]!
        .cfi_def_cfa_offset 48
        .cfi_offset 29, -48
        .cfi_offset 30, -40
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        str     x2, [sp, #32]
        mov     \caller, x30
        bl      \choose
        mov     x16, x0
        mov     x17, x1
        ldr     x2, [sp, #32]
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #48
        .cfi_restore 30
        .cfi_restore 29
        .cfi_def_cfa_offset 0
        cbnz    x17, 1f
        br      x16
1:      mov     x0, x16
        ret
        .cfi_endproc
        .size   \name, .-\name
        .endm

        vgpu_lookup dlsym, vgpu_choose_dlsym, x2
        vgpu_lookup dlvsym, vgpu_choose_dlvsym, x3

        .globl  dlopen
        .type   dlopen, %function
dlopen:
        .cfi_startproc
        hint    #34
        stp     x29, x30, [sp, #-32]!
        .cfi_def_cfa_offset 32
        .cfi_offset 29, -32
        .cfi_offset 30, -24
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        bl      vgpu_choose_dlopen
        mov     x16, x0
        mov     x17, x1
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #32
        .cfi_restore 30
        .cfi_restore 29
        .cfi_def_cfa_offset 0
        and     w1, w1, w17
        br      x16
        .cfi_endproc
        .size   dlopen, .-dlopen
)");

#endif
