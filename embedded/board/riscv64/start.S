# The first instructions, and the way into the trap handler and back.
# SPDX-License-Identifier: MIT OR Apache-2.0
    .section .text.start
    .globl _start
_start:
    csrr a0, mhartid
    bnez a0, 3f
    la sp, _stack
    la t0, _bss
    la t1, _bss_end
1:  bgeu t0, t1, 2f
    sd zero, 0(t0)
    addi t0, t0, 8
    j 1b
2:  la t0, trap
    csrw mtvec, t0
    call main
3:  wfi
    j 3b

    .align 4
trap:
    addi sp, sp, -144
    sd ra, 0(sp)
    sd t0, 8(sp)
    sd t1, 16(sp)
    sd t2, 24(sp)
    sd a0, 32(sp)
    sd a1, 40(sp)
    sd a2, 48(sp)
    sd a3, 56(sp)
    sd a4, 64(sp)
    sd a5, 72(sp)
    sd a6, 80(sp)
    sd a7, 88(sp)
    sd t3, 96(sp)
    sd t4, 104(sp)
    sd t5, 112(sp)
    sd t6, 120(sp)
    # Tasks that run in here are interrupted too.
    csrr t0, mepc
    csrr t1, mstatus
    sd t0, 128(sp)
    sd t1, 136(sp)
    csrr a0, mcause
    call board_trap
    ld t0, 128(sp)
    ld t1, 136(sp)
    csrw mepc, t0
    csrw mstatus, t1
    ld ra, 0(sp)
    ld t0, 8(sp)
    ld t1, 16(sp)
    ld t2, 24(sp)
    ld a0, 32(sp)
    ld a1, 40(sp)
    ld a2, 48(sp)
    ld a3, 56(sp)
    ld a4, 64(sp)
    ld a5, 72(sp)
    ld a6, 80(sp)
    ld a7, 88(sp)
    ld t3, 96(sp)
    ld t4, 104(sp)
    ld t5, 112(sp)
    ld t6, 120(sp)
    addi sp, sp, 144
    mret
