// case: a loop that waits for another thread
// build: -O1 -pthread
// finds: wait_for
// One thread reads a flag until another one, which works, sets it.
#include <pthread.h>
#include <stdio.h>

static volatile int is_done;
static volatile long sum;

__attribute__((noinline)) static void wait_for(void) {
    while (!is_done) {}
}

static void *work(void *unused) {
    for (long turn = 0; turn < 300000; turn++) sum += turn;
    is_done = 1;
    return unused;
}

int main(void) {
    pthread_t worker;
    pthread_create(&worker, 0, work, 0);
    wait_for();
    pthread_join(worker, 0);
    printf("%ld\n", sum);
    return 0;
}
