// Sixteen threads that calculate, allocate, handle signals and throw nothing away. Prints what they found.
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 16 };
static volatile long ticks;
static void tick(int number) { ticks++; (void)number; }
static double results[THREADS];
static volatile int go_on = 1;

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static double round_of(unsigned seed) {
    int *values = malloc(2000 * sizeof *values);
    for (int i = 0; i < 2000; i++) values[i] = (seed = seed * 1103515245u + 12345) >> 8;
    qsort(values, 2000, sizeof *values, compare);
    double sum = 0;
    for (int i = 0; i < 2000; i++) sum += sqrt(values[i]) * (i % 3 - 1);
    free(values);
    return sum;
}

static void *work(void *argument) {
    long number = (long)argument;
    double expected = round_of(number);
    long rounds = 0, wrong = 0;
    do {
        wrong += round_of(number) != expected;
        rounds++;
    } while (go_on);
    results[number] = wrong == 0 && rounds > 0 ? expected : -1;
    return 0;
}

int main(void) {
    signal(SIGALRM, tick);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    struct itimerspec every = {{0, 500000}, {0, 500000}};
    timer_settime(timer, 0, &every, 0);
    pthread_t threads[THREADS];
    for (long n = 0; n < THREADS; n++) pthread_create(threads + n, 0, work, (void *)n);
    printf("ready\n");
    fflush(stdout);
    while (getchar() != '\n') {}
    // A busy machine lets few signals arrive until then.
    for (int tries = 0; ticks <= 100 && tries < 60000; tries++) usleep(1000);
    go_on = 0;
    double sum = 0;
    for (int n = 0; n < THREADS; n++) {
        pthread_join(threads[n], 0);
        sum += results[n] == round_of(n);
    }
    printf("%.0f right, ticks %d\n", sum, ticks > 100);
    return 0;
}
