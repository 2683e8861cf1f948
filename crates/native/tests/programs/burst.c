/* 400 threads at once, then few, one after another. Prints how many kilobytes of memory are in use: before, while they run,
   right after, and after some more. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 400, MORE = 50 };

static pthread_barrier_t all;

static long memory(void) {
    long all, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (fscanf(file, "%ld %ld", &all, &resident) != 2)
        return -1;
    fclose(file);
    return resident * 4;
}

static void *waits(void *argument) {
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    return 0;
}

static void *ends(void *argument) { return 0; }

int main(void) {
    pthread_t threads[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    pthread_barrier_init(&all, 0, THREADS + 1);
    long before = memory();
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(threads + i, &attributes, waits, 0))
            return 1;
    pthread_barrier_wait(&all);
    long during = memory();
    pthread_barrier_wait(&all);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    long after = memory();
    for (int i = 0; i < MORE; i++) {
        pthread_create(threads, &attributes, ends, 0);
        pthread_join(threads[0], 0);
        usleep(50000);
    }
    printf("%ld %ld %ld %ld\n", before, during, after, memory());
}
