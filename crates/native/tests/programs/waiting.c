// Signal masks that hold while a system call waits, and signals of the processor's kinds that are sent.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <unistd.h>

static volatile int faults, users, floating, blocked_in_handler;

static void on_fault(int number) { faults++; (void)number; }
static void on_floating(int number) { floating++; (void)number; }
static void on_user(int number) {
    sigset_t now;
    sigprocmask(SIG_BLOCK, 0, &now);
    blocked_in_handler = sigismember(&now, SIGUSR2);
    users++;
    (void)number;
}
static void on_both(int number) {
    // Both arrive while this handler runs; the second one while the first one waits.
    raise(SIGSEGV);
    raise(SIGBUS);
    (void)number;
}

static void send_later(int number) {
    pid_t parent = getpid();
    if (fork() == 0) {
        usleep(20000);
        kill(parent, number);
        _exit(0);
    }
}

int main(void) {
    sigset_t all, usr1, old;
    sigfillset(&all);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    signal(SIGCHLD, SIG_IGN);
    signal(SIGUSR1, on_user);
    signal(SIGSEGV, on_fault);
    signal(SIGBUS, on_fault);
    signal(SIGFPE, on_floating);
    sigprocmask(SIG_BLOCK, &usr1, &old);

    sigset_t wait = all;
    sigdelset(&wait, SIGUSR1);
    send_later(SIGUSR1);
    int result = sigsuspend(&wait);
    printf("sigsuspend %d %d, %d\n", result, errno == EINTR, blocked_in_handler);

    struct pollfd none = {-1, 0, 0};
    struct timespec long_time = {20, 0};
    send_later(SIGUSR1);
    result = ppoll(&none, 1, &long_time, &wait);
    printf("ppoll %d %d\n", result, errno == EINTR);
    send_later(SIGUSR1);
    result = pselect(0, 0, 0, 0, &long_time, &wait);
    printf("pselect %d %d\n", result, errno == EINTR);
    int queue = epoll_create1(0);
    struct epoll_event event;
    send_later(SIGUSR1);
    result = epoll_pwait(queue, &event, 1, 20000, &wait);
    printf("epoll_pwait %d %d\n", result, errno == EINTR);
    struct timespec short_time = {0, 1000000};
    printf("pselect without a mask %d\n", pselect(0, 0, 0, 0, &short_time, 0));
    sigprocmask(SIG_BLOCK, 0, &old);
    printf("%d handlers, still blocked: %d\n", users, sigismember(&old, SIGUSR1));

    // A blocked signal of the processor's kind waits until it is unblocked.
    sigset_t floating_point;
    sigemptyset(&floating_point);
    sigaddset(&floating_point, SIGFPE);
    sigprocmask(SIG_BLOCK, &floating_point, 0);
    raise(SIGFPE);
    raise(SIGFPE);
    printf("blocked: %d\n", floating);
    sigprocmask(SIG_UNBLOCK, &floating_point, 0);
    printf("unblocked: %d\n", floating);

    signal(SIGUSR2, on_both);
    for (int round = 0; round < 50; round++) raise(SIGUSR2);
    printf("faults %d\n", faults);
    return 0;
}
