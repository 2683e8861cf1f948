# The first instructions, and the end: the debugger's call 0x18 stops the emulator.
# SPDX-License-Identifier: MIT OR Apache-2.0
    .section .text.start
    .globl _start
_start:
    la sp, _stack
    la t0, _bss
    la t1, _bss_end
1:  bgeu t0, t1, 2f
    sd zero, 0(t0)
    addi t0, t0, 8
    j 1b
2:  call main
    li a0, 0x18
    la a1, reason
    .balign 16
    .option push
    .option norvc
    slli zero, zero, 0x1f
    ebreak
    srai zero, zero, 7
    .option pop
3:  j 3b

    .section .rodata
    .balign 8
# The application exits, with code 0.
reason:
    .dword 0x20026, 0
