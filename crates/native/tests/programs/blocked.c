// Threads that wait in system calls. No call may end early.
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>
#include <unistd.h>

static int pipes[4][2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int woken;

static void *sleeps(void *argument) {
    struct timespec time = {1, 500000000};
    int result = nanosleep(&time, 0);
    return (void *)(long)(result == 0);
}
static void *reads(void *argument) {
    char byte;
    return (void *)(long)(read(pipes[0][0], &byte, 1) == 1);
}
static void *polls(void *argument) {
    struct pollfd file = {pipes[1][0], POLLIN, 0};
    return (void *)(long)(poll(&file, 1, 60000) == 1);
}
static void *waits_for_events(void *argument) {
    int queue = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {0}};
    epoll_ctl(queue, EPOLL_CTL_ADD, pipes[2][0], &event);
    return (void *)(long)(epoll_wait(queue, &event, 1, 60000) == 1);
}
static void *selects(void *argument) {
    fd_set files;
    FD_ZERO(&files);
    FD_SET(pipes[3][0], &files);
    sigset_t none;
    sigemptyset(&none);
    struct timespec time = {60, 0};
    return (void *)(long)(pselect(pipes[3][0] + 1, &files, 0, 0, &time, &none) == 1);
}
static void *waits(void *argument) {
    pthread_mutex_lock(&mutex);
    while (!woken) pthread_cond_wait(&condition, &mutex);
    pthread_mutex_unlock(&mutex);
    return (void *)1;
}

int main(void) {
    void *(*const all[])(void *) = {sleeps, reads, polls, waits_for_events, selects, waits};
    pthread_t threads[6];
    for (int n = 0; n < 4; n++) pipe(pipes[n]);
    for (int n = 0; n < 6; n++) pthread_create(threads + n, 0, all[n], 0);
    usleep(100000);
    printf("ready\n");
    fflush(stdout);
    char line[8];
    int result = read(0, line, sizeof line);
    printf("input %d\n", result);
    for (int n = 0; n < 4; n++) write(pipes[n][1], "x", 1);
    pthread_mutex_lock(&mutex);
    woken = 1;
    pthread_cond_broadcast(&condition);
    pthread_mutex_unlock(&mutex);
    for (int n = 0; n < 6; n++) {
        void *right;
        pthread_join(threads[n], &right);
        printf("%d %ld\n", n, (long)right);
    }
    return 0;
}
