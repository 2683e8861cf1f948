// Calculates while a POSIX timer sends a signal every 20 microseconds.
#include <signal.h>
#include <time.h>

static volatile unsigned long ticks, turns;
static void tick(int number) { ticks++; (void)number; }

int main(void) {
    signal(SIGALRM, tick);
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    struct itimerspec every = {{0, 20000}, {0, 20000}};
    timer_settime(timer, 0, &every, 0);
    for (;;) turns++;
}
