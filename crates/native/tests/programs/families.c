// A thousand threads; programs that start programs by vfork; forks of a program with threads.
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static long done;
static void *add(void *argument) {
    long own = 0;
    for (int n = 0; n < 500; n++) own += (n ^ (long)argument) & 3;
    __atomic_fetch_add(&done, own, __ATOMIC_RELAXED);
    return 0;
}

static int chain(int depth) {
    if (depth == 0) return 3;
    char text[16];
    snprintf(text, sizeof text, "%d", depth - 1);
    pid_t child = vfork();
    if (child == 0) {
        execl("/proc/self/exe", "families", "chain", text, (char *)0);
        _exit(100);
    }
    int status;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) + 1;
}

static volatile int over;
static void *allocates(void *argument) {
    while (!over) free(malloc(100 + (random() & 1023)));
    return argument;
}

int main(int count, char **arguments) {
    if (count == 3) return chain(atoi(arguments[2]));
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 1 << 16);
    enum { THREADS = 1000, TOGETHER = 200 };
    for (int group = 0; group < THREADS / TOGETHER; group++) {
        pthread_t threads[TOGETHER];
        for (long n = 0; n < TOGETHER; n++)
            if (pthread_create(threads + n, &small, add, (void *)n)) return 1;
        for (int n = 0; n < TOGETHER; n++) pthread_join(threads[n], 0);
    }
    printf("threads %ld\n", done);
    printf("chain %d\n", chain(8));
    pid_t spawned;
    char *words[] = {"true", 0};
    int status = -1;
    for (int n = 0; n < 10; n++) {
        posix_spawnp(&spawned, "true", 0, 0, words, environ);
        waitpid(spawned, &status, 0);
    }
    printf("spawned %d\n", status);
    pthread_t threads[4];
    for (int n = 0; n < 4; n++) pthread_create(threads + n, 0, allocates, 0);
    int sum = 0;
    for (int n = 0; n < 30; n++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            char *text = malloc(4000);
            memset(text, n, 4000);
            _exit(text[3999]);
        }
        waitpid(child, &status, 0);
        sum += WEXITSTATUS(status);
    }
    over = 1;
    for (int n = 0; n < 4; n++) pthread_join(threads[n], 0);
    printf("forks %d\n", sum);
    return 0;
}
