/* Threads that are named by themselves and by others, and one that takes other names in a signal handler again and again. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/time.h>

static atomic_int runs, named;
static volatile long renames;

__attribute__((noinline)) uint64_t selected_work(uint64_t x) { return (x ^ x << 13) * 0x9e3779b97f4a7c15ull; }
__attribute__((noinline)) uint64_t other_work(uint64_t x) { return (x ^ x >> 7) * 0xbf58476d1ce4e5b9ull; }

static void *names_itself(void *argument) {
    uint64_t x = 1;
    prctl(PR_SET_NAME, "worker-1");
    for (int i = 0; i < 100000; i++)
        x = selected_work(x);
    return (void *)x;
}

static void *is_named(void *argument) {
    uint64_t x = 2;
    runs = 1;
    while (!named)
        x = other_work(x);
    for (int i = 0; i < 300000; i++)
        x = selected_work(x);
    return (void *)x;
}

static void *stays_out(void *argument) {
    uint64_t x = 3;
    prctl(PR_SET_NAME, "helper");
    for (int i = 0; i < 100000; i++)
        x = other_work(x);
    return (void *)x;
}

static void on_timer(int number) { prctl(PR_SET_NAME, renames++ & 1 ? "worker-x" : "idle"); }

static int compare(const void *a, const void *b) {
    return *(uint32_t *)a < *(uint32_t *)b ? -1 : *(uint32_t *)a > *(uint32_t *)b;
}

/* Sorts while the timer's handler renames this thread. */
static uint64_t sorts(void) {
    static uint32_t numbers[5000];
    uint64_t x = 88172645463325252ull, sum = 0;
    for (int round = 0; round < 150; round++) {
        for (int i = 0; i < 5000; i++)
            x ^= x << 13, x ^= x >> 7, x ^= x << 17, numbers[i] = x;
        qsort(numbers, 5000, 4, compare);
        for (int i = 0; i < 5000; i++)
            sum = sum * 31 + numbers[i];
    }
    return sum;
}

int main(int count, char **arguments) {
    if (count > 1) {
        struct itimerval timer = {{0, 300}, {0, 300}};
        signal(SIGALRM, on_timer);
        setitimer(ITIMER_REAL, &timer, 0);
        printf("%lx\n", sorts());
        return renames < 10;
    }
    pthread_t threads[3];
    pthread_create(threads, 0, names_itself, 0);
    pthread_create(threads + 1, 0, is_named, 0);
    pthread_create(threads + 2, 0, stays_out, 0);
    while (!runs) {}
    pthread_setname_np(threads[1], "worker-2");
    named = 1;
    uint64_t sum = 0;
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (uint64_t)result;
    }
    printf("%lx\n", sum == 0);
}
