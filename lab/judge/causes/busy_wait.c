// case: a loop that waits for another thread
// build: -O1 -pthread
// finds: wait_for
// One thread reads a flag until another one sets it, which waits for a device. However busy the machine is, the first one
// runs much more than the second.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static volatile int is_done;
static volatile long sum;

__attribute__((noinline)) static void wait_for(void) {
    while (!is_done) {}
}

static void *work(void *unused) {
    const struct timespec answers_after = {.tv_nsec = 2000000};
    for (long turn = 0; turn < 20; turn++) {
        nanosleep(&answers_after, 0);
        sum += turn;
    }
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
