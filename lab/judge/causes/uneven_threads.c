// case: one thread has most of the work
// build: -O1 -pthread
// finds: unequal shares|work
// Four threads divide rows, whose lengths differ, by their number.
#include <pthread.h>
#include <stdio.h>

static volatile unsigned long sums[4];

__attribute__((noinline)) static void row(long thread, long length) {
    for (long column = 0; column < length; column++) sums[thread] += column;
}

static void *work(void *number) {
    long thread = (long)number;
    for (long index = thread * 100; index < thread * 100 + 100; index++) row(thread, index * index / 200);
    return 0;
}

int main(void) {
    pthread_t threads[4];
    for (long thread = 0; thread < 4; thread++) pthread_create(threads + thread, 0, work, (void *)thread);
    for (int thread = 0; thread < 4; thread++) pthread_join(threads[thread], 0);
    printf("%lu\n", sums[0] + sums[3]);
    return 0;
}
