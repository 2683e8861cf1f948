/* Timer signals while code runs, jumps out of handlers, interrupted and restarted system calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile long hits, inside, jumps;
static volatile int may_jump;
static sigjmp_buf back;
extern char etext, __executable_start;

static void on_timer(int number, siginfo_t *info, void *context) {
    (void)number;
    (void)info;
    uint64_t pc = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    hits++;
    inside += pc >= (uint64_t)&__executable_start && pc < (uint64_t)&etext;
    char line[64];
    errno = snprintf(line, sizeof line, "%ld %f", hits, hits * 0.5);
}

static void on_jump(int number) {
    (void)number;
    if (may_jump) {
        may_jump = 0;
        jumps++;
        siglongjmp(back, 1);
    }
}

static int compare(const void *a, const void *b) {
    return *(uint32_t *)a < *(uint32_t *)b ? -1 : *(uint32_t *)a > *(uint32_t *)b;
}

static uint64_t work(void) {
    static uint32_t numbers[5000];
    uint64_t x = 88172645463325252ull, sum = 0;
    double d = 1;
    for (int round = 0; round < 40; round++) {
        for (int i = 0; i < 5000; i++) {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            numbers[i] = x;
            d = d * 1.0000001 + (x & 7);
        }
        qsort(numbers, 5000, 4, compare);
        for (int i = 0; i < 5000; i++)
            sum = sum * 31 + numbers[i];
    }
    return sum + (uint64_t)d;
}

static void every(int microseconds) {
    struct itimerval timer = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &timer, 0);
}

/* With an argument it works for so many seconds. */
int main(int count, char **arguments) {
    uint64_t alone = work();
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_timer;
    action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
    sigaltstack(&stack, 0);
    sigaction(SIGALRM, &action, 0);
    every(100);
    time_t end = time(0) + (count > 1 ? atoi(arguments[1]) : 0);
    do {
        if (work() != alone)
            return 1;
    } while (time(0) < end);
    int ends[2];
    if (pipe(ends))
        return 2;
    if (!fork()) {
        usleep(100000);
        return write(ends[1], "x", 1) != 1;
    }
    char byte = 0;
    every(2000);
    if (read(ends[0], &byte, 1) != 1 || byte != 'x')
        return 3;
    int status;
    if (wait(&status) < 0 || status)
        return 4;
    action.sa_flags &= ~SA_RESTART;
    sigaction(SIGALRM, &action, 0);
    every(20000);
    if (read(ends[0], &byte, 1) != -1 || errno != EINTR)
        return 5;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_jump;
    sigaction(SIGALRM, &action, 0);
    every(2000);
    for (volatile int i = 0; i < 20; i++) {
        if (!sigsetjmp(back, 1)) {
            may_jump = 1;
            /* A loop without a conditional branch would have no packets of Intel PT that tell how often it ran. */
            for (volatile uint64_t x = 0; x < UINT64_MAX; x++)
                ;
        }
    }
    every(0);
    printf("%ld jumps, %s\n", jumps, hits > 10 && inside > 0 ? "hits" : "none");
    return jumps == 20 && hits > 10 && inside > 0 ? 0 : 6;
}
