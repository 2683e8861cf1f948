# Direct and indirect calls, recursion, a loop, and system calls.
    .option norelax
    .globl _start
    .type _start, @function
_start:
    li s3, 20
1:  li a0, 6
    call fib
    lla a1, twice
    jalr a1
    call answer
    addi s3, s3, -1
    bnez s3, 1b
    li a7, 93
    li a0, 0
    ecall
    .size _start, . - _start

    .type fib, @function
fib:
    li t0, 2
    blt a0, t0, 2f
    addi sp, sp, -32
    sd ra, 0(sp)
    sd s1, 8(sp)
    sd s2, 16(sp)
    mv s1, a0
    addi a0, a0, -1
    call fib
    mv s2, a0
    addi a0, s1, -2
    call fib
    add a0, a0, s2
    ld s2, 16(sp)
    ld s1, 8(sp)
    ld ra, 0(sp)
    addi sp, sp, 32
2:  ret
    .size fib, . - fib

    .type twice, @function
twice:
    add a0, a0, a0
    ret
    .size twice, . - twice

# The identity of the process, by a system call.
    .type answer, @function
answer:
    li a7, 172
    ecall
    ret
    .size answer, . - answer
