// record: kernel
// build: -O1 -pthread
// case: threads that are joined
// healthy:
// One thread after the other works, and the first one waits for each: no locks.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static volatile long sum;

static void *work(void *unused) {
    for (long turn = 0; turn < 60000000; turn++) sum += turn;
    return unused;
}

int main(void) {
    for (int number = 0; number < 4; number++) {
        pthread_t worker;
        pthread_create(&worker, 0, work, 0);
        pthread_join(worker, 0);
    }
    return 0;
}
