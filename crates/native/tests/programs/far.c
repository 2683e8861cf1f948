// Far returns within 64-bit code, and one that leaves it.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

static sigjmp_buf back;

static void refused(int number) { siglongjmp(back, number); }

static long by_far_return(long value) {
    __asm__ volatile("push $0x33\n"
                     "lea 1f(%%rip), %%rax\n"
                     "push %%rax\n"
                     "lretq\n"
                     "ud2\n"
                     "1: add $1, %0\n"
                     : "+r"(value)
                     :
                     : "rax", "cc", "memory");
    return value;
}

static long by_interrupt_return(long value) {
    __asm__ volatile("mov %%rsp, %%rcx\n"
                     "push $0x2b\n"
                     "push %%rcx\n"
                     "pushfq\n"
                     "orq $1, (%%rsp)\n"
                     "push $0x33\n"
                     "lea 1f(%%rip), %%rax\n"
                     "push %%rax\n"
                     "iretq\n"
                     "ud2\n"
                     "1: adc $10, %0\n"
                     : "+r"(value)
                     :
                     : "rax", "rcx", "cc", "memory");
    return value;
}

int main(int count, char **arguments) {
    long sum = 0;
    for (int round = 0; round < 300; round++) {
        sum += by_far_return(round);
        sum += by_interrupt_return(round);
    }
    printf("%ld\n", sum);
    if (count > 1) {
        signal(SIGSEGV, refused);
        signal(SIGILL, refused);
        if (sigsetjmp(back, 1) == 0) {
            // To a segment that does not exist.
            __asm__ volatile("push $0x7b\n lea 1f(%rip), %rax\n push %rax\n lretq\n 1: nop\n");
            printf("went on\n");
        } else {
            printf("refused\n");
        }
    }
    return 0;
}
