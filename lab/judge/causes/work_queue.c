// record: kernel
// build: -O1 -pthread
// case: workers that wait for work
// healthy:
// Two workers wait at a condition variable for jobs, which come every five milliseconds.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static int jobs, is_over;
static volatile long sums[2];

static void *work(void *number) {
    for (;;) {
        pthread_mutex_lock(&mutex);
        while (!jobs && !is_over) pthread_cond_wait(&more, &mutex);
        if (!jobs) break;
        jobs--;
        pthread_mutex_unlock(&mutex);
        for (int turn = 0; turn < 1000000; turn++) sums[(long)number] += turn;
    }
    pthread_mutex_unlock(&mutex);
    return 0;
}

int main(void) {
    pthread_t workers[2];
    for (long number = 0; number < 2; number++) pthread_create(workers + number, 0, work, (void *)number);
    for (int job = 0; job < 30; job++) {
        struct timespec pause = {0, 25000000};
        nanosleep(&pause, 0);
        pthread_mutex_lock(&mutex);
        jobs++;
        pthread_cond_signal(&more);
        pthread_mutex_unlock(&mutex);
    }
    pthread_mutex_lock(&mutex);
    is_over = 1;
    pthread_cond_broadcast(&more);
    pthread_mutex_unlock(&mutex);
    for (int number = 0; number < 2; number++) pthread_join(workers[number], 0);
    return 0;
}
