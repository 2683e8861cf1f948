/* 64 threads at once, twice, with a lock, thread-local memory and recursion. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long shared;
static __thread long own;
static uint64_t results[64];

static long fibonacci(long n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

static void *run(void *argument) {
    long id = (long)argument;
    for (int i = 0; i < 100; i++) {
        own += i;
        pthread_mutex_lock(&lock);
        shared++;
        pthread_mutex_unlock(&lock);
    }
    results[id] = fibonacci(10 + id % 8) + own;
    return 0;
}

int main(void) {
    uint64_t sum = 0;
    for (int round = 0; round < 2; round++) {
        pthread_t threads[64];
        for (long i = 0; i < 64; i++)
            if (pthread_create(threads + i, 0, run, (void *)i))
                return 1;
        for (int i = 0; i < 64; i++)
            pthread_join(threads[i], 0);
        for (int i = 0; i < 64; i++)
            sum = sum * 131 + results[i];
    }
    printf("%lx %ld\n", sum, shared);
    return shared == 12800 ? 0 : 2;
}
