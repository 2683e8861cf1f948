// build: -O1 -pthread
// case: threads with different tasks
// healthy:
// A reader, a worker and a writer hand blocks on; each does another kind of work.
#include <pthread.h>
#include <stdio.h>

static volatile long read_sum, work_sum, write_sum;

__attribute__((noinline)) static void *reader(void *unused) {
    for (long turn = 0; turn < 20000; turn++) read_sum += turn;
    return unused;
}

__attribute__((noinline)) static void *worker(void *unused) {
    for (long turn = 0; turn < 600000; turn++) work_sum += turn % 7;
    return unused;
}

__attribute__((noinline)) static void *writer(void *unused) {
    for (long turn = 0; turn < 90000; turn++) write_sum += turn;
    return unused;
}

int main(void) {
    void *(*tasks[])(void *) = {reader, worker, writer};
    pthread_t threads[3];
    for (int task = 0; task < 3; task++) pthread_create(threads + task, 0, tasks[task], 0);
    for (int task = 0; task < 3; task++) pthread_join(threads[task], 0);
    printf("%ld\n", work_sum);
    return 0;
}
