// record: kernel
// case: a loop that sleeps instead of waiting
// finds: sleeps again and again|clock_nanosleep
// One thread looks every millisecond whether another one is done.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static volatile int is_done;

static void *work(void *unused) {
    struct timespec second = {1, 0};
    nanosleep(&second, 0);
    is_done = 1;
    return unused;
}

int main(void) {
    pthread_t worker;
    pthread_create(&worker, 0, work, 0);
    struct timespec millisecond = {0, 1000000};
    long looks = 0;
    for (; !is_done; looks++) nanosleep(&millisecond, 0);
    pthread_join(worker, 0);
    printf("%d\n", looks > 100);
    return 0;
}
