/* What leaves the straight path: a timer that interrupts anywhere, handlers that nest, faults that are
 * repaired, and faults that are jumped out of. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

/* How many times the timer interrupts, at least. */
#ifndef TICKS
#define TICKS 20
#endif

static volatile sig_atomic_t ticks, nested, faults;
static sigjmp_buf escape;
static char *page;
static long page_size;

/* Handlers use only what is safe in a handler. */
static void on_nested(int signal)
{
    (void)signal;
    nested++;
}

static void on_tick(int signal)
{
    (void)signal;
    ticks++;
    raise(SIGUSR1); /* interrupts this handler */
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    faults++;
    if ((char *)info->si_addr == page)
        mprotect(page, (size_t)page_size, PROT_READ | PROT_WRITE); /* the store runs again, and succeeds */
    else
        siglongjmp(escape, 1);
}

static void handle(int signal, void (*plain)(int), void (*detailed)(int, siginfo_t *, void *))
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART | (detailed ? SA_SIGINFO : 0);
    if (detailed)
        action.sa_sigaction = detailed;
    else
        action.sa_handler = plain;
    sigaction(signal, &action, NULL);
}

__attribute__((noinline)) static uint64_t busy(uint64_t value, int rounds)
{
    while (rounds-- > 0)
        value = value % 3 == 0 ? value / 3 : value * 5 + 1;
    return value;
}

int main(void)
{
    volatile uint64_t value = 7;
    volatile int escapes = 0;
    volatile uintptr_t nowhere = 16;
    page_size = sysconf(_SC_PAGESIZE);
    page = mmap(NULL, (size_t)page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return 1;
    handle(SIGALRM, on_tick, NULL);
    handle(SIGUSR1, on_nested, NULL);
    handle(SIGSEGV, NULL, on_fault);
    struct itimerval every_millisecond = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &every_millisecond, NULL);
    for (int round = 0; round < 100 || ticks < TICKS; round++) {
        mprotect(page, (size_t)page_size, PROT_NONE);
        *(volatile char *)page = (char)round;
        if (sigsetjmp(escape, 1) == 0)
            *(volatile char *)nowhere = 1;
        else
            escapes++;
        value = busy(value, 20000);
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    printf("faults repaired %d, escaped %d\n", faults - escapes, escapes);
    return ticks >= TICKS && nested > 0 && faults == 2 * escapes ? 0 : 1;
}
