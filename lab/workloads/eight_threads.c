/* Eight threads that fight over a lock, wait for each other at a barrier, and start a thread of their own. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

enum { THREADS = 8, ROUNDS = 200 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t barrier;
static uint64_t total;

__attribute__((noinline)) static uint64_t mix(uint64_t value, int rounds)
{
    for (int i = 0; i < rounds; i++)
        value = (value ^ value >> 29) * 0xbf58476d1ce4e5b9u;
    return value;
}

static void *child(void *argument)
{
    *(uint64_t *)argument = mix(*(uint64_t *)argument, 5000);
    return NULL;
}

static void *worker(void *argument)
{
    uint64_t value = (uint64_t)(intptr_t)argument + 1;
    pthread_t thread;
    for (int round = 0; round < ROUNDS; round++) {
        value = mix(value, 100);
        pthread_mutex_lock(&lock);
        total += value;
        pthread_mutex_unlock(&lock);
        if (round % 50 == 0)
            pthread_barrier_wait(&barrier);
    }
    if (pthread_create(&thread, NULL, child, &value) == 0)
        pthread_join(thread, NULL);
    return (void *)(uintptr_t)value;
}

int main(void)
{
    pthread_t threads[THREADS];
    uint64_t sum = 0;
    pthread_barrier_init(&barrier, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++) {
        void *value;
        pthread_join(threads[i], &value);
        sum += (uint64_t)(uintptr_t)value;
    }
    printf("total %016llx, checksum %016llx\n", (unsigned long long)total, (unsigned long long)sum);
    return 0;
}
