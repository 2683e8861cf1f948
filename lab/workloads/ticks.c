/* A timer that interrupts N times, every 200 us, while the program computes, calls the kernel and sleeps by turns:
 * docs/reproduction/kernel.md. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t ticks;

static void on_tick(int signal) {
    (void)signal;
    ticks++;
}

int main(int count, char **arguments) {
    int wanted = count > 1 ? atoi(arguments[1]) : 2000;
    struct itimerval interval = {{0, 200}, {0, 200}};
    static char page[4096];
    volatile unsigned sum = 0;
    signal(SIGALRM, on_tick);
    if (setitimer(ITIMER_REAL, &interval, NULL) != 0) {
        perror("setitimer");
        return 1;
    }
    while (ticks < wanted) {
        for (int i = 0; i < 10000; i++)
            sum += i;
        for (int i = 0; i < 20; i++) {
            void *mapped = mmap(NULL, sizeof page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (mapped == MAP_FAILED) {
                perror("mmap");
                return 1;
            }
            *(char *)mapped = 1;
            munmap(mapped, sizeof page);
        }
        pause();
    }
    printf("%d ticks\n", (int)ticks);
    return 0;
}
