/* Calls through a pointer that can't be read, again and again: a handler goes on behind the call. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>

static long faults;

static void skip(int number, siginfo_t *info, void *context) {
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2;
    faults++;
}

int main(void) {
    struct sigaction action = {.sa_sigaction = skip, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, 0);
    volatile long sum = 0;
    for (int i = 0; i < 2000; i++) {
        for (int j = 0; j < i % 7; j++)
            sum += j;
        __asm__ volatile("call *(%%rax)" : : "a"(8L) : "memory", "cc");
    }
    printf("%ld %ld\n", faults, sum);
}
