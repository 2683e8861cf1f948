/* Faults of the program's own code, mapped back to it: handlers see its addresses and registers. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

static sigjmp_buf back;
static volatile int seen;
static char *page;

static void on_fault(int number, siginfo_t *info, void *context) {
    ucontext_t *user = context;
    seen += number;
    if (number == SIGTRAP)
        return;
    if (number == SIGSEGV && info->si_addr == page) {
        /* The faulting instruction runs again. */
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
        return;
    }
    if (number == SIGILL) {
        if (info->si_addr != (void *)user->uc_mcontext.gregs[REG_RIP])
            exit(3);
        user->uc_mcontext.gregs[REG_RIP] += 2;
        return;
    }
    siglongjmp(back, 1);
}

int main(int count, char **arguments) {
    (void)arguments;
    /* A debugger that steps through the handler of SIGTRAP loses it. */
    int traps = count > 1;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO;
    int numbers[] = {SIGSEGV, SIGILL, SIGTRAP, SIGFPE};
    for (int i = 0; i < 4; i++)
        sigaction(numbers[i], &action, 0);
    page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 20; i++) {
        mprotect(page, 4096, PROT_NONE);
        *(volatile char *)page = i;
        if (*(volatile char *)page != i)
            return 1;
        __asm__ volatile("ud2");
        if (traps)
            __asm__ volatile("int3");
        if (!sigsetjmp(back, 1))
            *(volatile int *)8 = 1;
        volatile int zero = 0;
        if (!sigsetjmp(back, 1))
            seen = seen / zero;
        if (!sigsetjmp(back, 1))
            ((void (*)(void))16)();
    }
    printf("%d\n", seen);
    return seen == 20 * (SIGSEGV * 3 + SIGILL + traps * SIGTRAP + SIGFPE) ? 0 : 2;
}
