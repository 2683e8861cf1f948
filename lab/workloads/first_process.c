/* The first process of a machine without any other: system calls, page faults, forks, threads, signals and sleeping, and then the
 * machine is switched off. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 40, PAGES = 64, PAGE = 4096 };

static volatile sig_atomic_t signals;
static int ends[2];

static void handle(int signal) {
    (void)signal;
    signals++;
}

/* Touches fresh memory, a page fault each. */
static uint64_t touch(void) {
    uint64_t sum = 0;
    volatile char *pages = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) abort();
    for (int page = 0; page < PAGES; page++) pages[page * PAGE] = page, sum += pages[page * PAGE];
    munmap((void *)pages, PAGES * PAGE);
    return sum;
}

static uint64_t fibonacci(uint64_t n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

static void *echo(void *rounds) {
    char byte;
    for (intptr_t round = 0; round < (intptr_t)rounds; round++)
        if (read(ends[0], &byte, 1) != 1) abort();
    return (void *)fibonacci(15);
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void files(int round) {
    char text[4096];
    FILE *file = fopen("/file", "w+");
    if (!file) abort();
    for (int line = 0; line < 50; line++) fprintf(file, "%d %d %.3f\n", round, line, line / 7.0);
    rewind(file);
    while (fgets(text, sizeof text, file)) {}
    fclose(file);
    unlink("/file");
}

int main(void) {
    struct sigaction action = {.sa_handler = handle};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        if (pipe(ends)) abort();
        pthread_create(&thread, NULL, echo, (void *)8);
        for (int i = 0; i < 8; i++)
            if (write(ends[1], "x", 1) != 1) abort();
        pthread_join(thread, NULL);
        close(ends[0]), close(ends[1]);
        int child = fork();
        if (!child) _exit(touch() % 7);
        waitpid(child, NULL, 0);
        raise(SIGUSR1);
        ualarm(1000, 0);
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
        files(round);
        int values[200];
        for (int i = 0; i < 200; i++) values[i] = rand() % 1000;
        qsort(values, 200, sizeof *values, compare);
    }
    printf("%d signals\n", (int)signals);
    fflush(stdout);
    sync();
    reboot(RB_POWER_OFF);
}
