// record: kernel
// case: a loop of waits that expire
// finds: looks again and again whether something happened|poll
// One thread waits for an event that nobody makes, a millisecond each time, and looks whether another thread is done.
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static volatile int is_done;

static void *work(void *unused) {
    struct timespec second = {1, 0};
    nanosleep(&second, 0);
    is_done = 1;
    return unused;
}

int main(void) {
    int ends[2];
    if (pipe(ends)) return 1;
    pthread_t worker;
    pthread_create(&worker, 0, work, 0);
    struct pollfd wanted = {ends[0], POLLIN, 0};
    long looks = 0;
    for (; !is_done; looks++) poll(&wanted, 1, 1);
    pthread_join(worker, 0);
    printf("%d\n", looks > 100);
    return 0;
}
