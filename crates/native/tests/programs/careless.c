// Closes all files but its output, forks while its threads run, and goes on.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int over;
static void *busy(void *argument) {
    long n = 0;
    while (!over)
        for (int i = 0; i < 1000; i++) n = n * 3 + i;
    *(long *)argument = n;
    return 0;
}

int main(void) {
    close_range(3, ~0u, 0);
    pthread_t threads[3];
    long results[3];
    for (int n = 0; n < 3; n++) pthread_create(threads + n, 0, busy, results + n);
    int sum = 0;
    for (int n = 0; n < 40; n++) {
        pid_t child = fork();
        if (child == 0) {
            volatile int work = 0;
            for (int i = 0; i < 50000; i++) work += i % 7;
            _exit(work % 100);
        }
        int status;
        waitpid(child, &status, 0);
        sum += WEXITSTATUS(status);
    }
    over = 1;
    for (int n = 0; n < 3; n++) pthread_join(threads[n], 0);
    printf("%d\n", sum);
    return 0;
}
