// record: kernel
// case: a loop that yields until something happens
// finds: spins|sched_yield
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>

static volatile int is_done;

static void *work(void *unused) {
    struct timespec half = {0, 500000000};
    nanosleep(&half, 0);
    is_done = 1;
    return unused;
}

int main(void) {
    pthread_t worker;
    pthread_create(&worker, 0, work, 0);
    while (!is_done) sched_yield();
    pthread_join(worker, 0);
    return 0;
}
