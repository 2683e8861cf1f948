// Handlers that jump out, handlers that repair and resume, and handlers on a stack of their own.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

static sigjmp_buf back;
static volatile long ticks, on_own_stack, repaired;
static char *own_stack;
enum { STACK = 1 << 16 };

static void jump_out(int number) { siglongjmp(back, number); }

static void tick(int number) {
    char here;
    ticks++;
    on_own_stack += &here > own_stack && &here < own_stack + STACK;
    (void)number;
}

static void repair(int number, siginfo_t *info, void *context) {
    char *page = (char *)((unsigned long)info->si_addr & ~4095ul);
    mprotect(page, 4096, PROT_READ | PROT_WRITE);
    repaired++;
    (void)number;
    (void)context;
}

static void skip(int number, siginfo_t *info, void *context) {
    ucontext_t *state = context;
    // ud2 has two bytes.
    state->uc_mcontext.gregs[REG_RIP] += 2;
    state->uc_mcontext.gregs[REG_RBX]++;
    (void)number;
    (void)info;
}

static long overflow(long depth) {
    volatile char room[4096];
    memset((char *)room, (int)depth, sizeof room);
    return overflow(depth + 1) + room[depth & 4095];
}

int main(void) {
    own_stack = malloc(STACK);
    stack_t stack = {.ss_sp = own_stack, .ss_size = STACK};
    sigaltstack(&stack, 0);

    struct sigaction action = {.sa_handler = tick, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGALRM, &action, 0);
    struct itimerval every = {{0, 100}, {0, 100}};
    setitimer(ITIMER_REAL, &every, 0);
    double sum = 0;
    long count = 0;
    while (ticks < 3000) {
        for (int n = 1; n < 2000; n++) sum += 1.0 / n;
        count++;
    }
    every.it_value.tv_usec = 0;
    setitimer(ITIMER_REAL, &every, 0);
    double expected = 0;
    for (long round = 0; round < count; round++)
        for (int n = 1; n < 2000; n++) expected += 1.0 / n;
    printf("ticks, all on their stack: %d, sums equal: %d\n", on_own_stack == ticks, sum == expected);

    struct sigaction out = {.sa_handler = jump_out, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &out, 0);
    int jumps = 0;
    for (int round = 0; round < 300; round++) {
        if (sigsetjmp(back, 1) == 0) *(volatile int *)8 = 1;
        else jumps++;
    }
    printf("jumps %d\n", jumps);
    if (sigsetjmp(back, 1) == 0) printf("%ld\n", overflow(0));
    else printf("the stack was full\n");

    struct sigaction mend = {.sa_sigaction = repair, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &mend, 0);
    char *memory = mmap(0, 200 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < 200; page++) memory[page * 4096 + page] = (char)page;
    long total = 0;
    for (int page = 0; page < 200; page++) total += memory[page * 4096 + page];
    printf("repaired %ld, %ld\n", repaired, total);

    struct sigaction over = {.sa_sigaction = skip, .sa_flags = SA_SIGINFO};
    sigaction(SIGILL, &over, 0);
    long skipped = 0;
    for (int round = 0; round < 200; round++) {
        long here = 0;
        __asm__ volatile("mov $5, %%rbx\n ud2\n mov %%rbx, %0" : "=r"(here) : : "rbx");
        skipped += here;
    }
    printf("skipped %ld\n", skipped);
    return 0;
}
