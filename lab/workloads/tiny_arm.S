// Calls by BL, BLR and recursion, a loop, and system calls.
    .globl _start
    .type _start, %function
_start:
    mov x19, #20
1:  mov x0, #6
    bl fib
    adr x1, twice
    blr x1
    bl answer
    subs x19, x19, #1
    b.ne 1b
    isb
    mov x8, #93
    mov x0, #0
    svc #0
    .size _start, . - _start

    .type fib, %function
fib:
    cmp x0, #2
    b.lt 2f
    stp x29, x30, [sp, #-32]!
    stp x20, x21, [sp, #16]
    mov x20, x0
    sub x0, x0, #1
    bl fib
    mov x21, x0
    sub x0, x20, #2
    bl fib
    add x0, x0, x21
    ldp x20, x21, [sp, #16]
    ldp x29, x30, [sp], #32
2:  ret
    .size fib, . - fib

    .type twice, %function
twice:
    add x0, x0, x0
    ret
    .size twice, . - twice

    // The identity of the process, by a system call.
    .type answer, %function
answer:
    mov x8, #172
    svc #0
    ret
    .size answer, . - answer
