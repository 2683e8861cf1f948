// Threads that write events to LTTng: tracepoints THREADS EVENTS writes EVENTS events in each of THREADS threads,
// each of which says which thread and which event it is.
#include <lttng/tracef.h>
#include <pthread.h>
#include <stdlib.h>

static long events;

static void *work(void *argument) {
    int thread = (int)(long)argument;
    for (long event = 0; event < events; event++)
        lttng_ust_tracef("thread %d event %ld", thread, event);
    return 0;
}

int main(int count, char **arguments) {
    pthread_t threads[64];
    long many = count > 1 ? atol(arguments[1]) : 4;
    events = count > 2 ? atol(arguments[2]) : 100000;
    for (long thread = 0; thread < many && thread < 64; thread++)
        pthread_create(&threads[thread], 0, work, (void *)thread);
    for (long thread = 0; thread < many && thread < 64; thread++)
        pthread_join(threads[thread], 0);
    return 0;
}
