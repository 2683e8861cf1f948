// case: threads that queue for one lock, in control flow alone
// finds: wait for locks|serve,pthread_mutex_lock
// build: -pthread
// Four threads hold one lock for nearly all of their work.
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned sum;

__attribute__((noinline)) void serve(unsigned request) {
    pthread_mutex_lock(&lock);
    for (int step = 0; step < 100000; step++) sum = sum * 7 + request;
    pthread_mutex_unlock(&lock);
}

static void *work(void *unused) {
    for (unsigned request = 0; request < 200; request++) serve(request);
    return unused;
}

int main(void) {
    pthread_t threads[4];
    for (int thread = 0; thread < 4; thread++) pthread_create(&threads[thread], 0, work, 0);
    for (int thread = 0; thread < 4; thread++) pthread_join(threads[thread], 0);
    printf("%u\n", sum);
    return 0;
}
