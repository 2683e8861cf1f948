/* Threads that wait for a known cause: `waits CAUSE`, one of those below. The thread `subject` waits most of its life;
 * the others are named for what they do. Prints nothing; exits with 2 where the system forbids something.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MILLISECONDS(n) ((n) * 1000000L)
#define FILE_BYTES (16L << 20)

static pthread_mutex_t outer, inner;
static pthread_barrier_t ready;
static const char *folder;

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static void call_me(const char *name)
{
    prctl(PR_SET_NAME, name);
}

static void compute(long nanoseconds)
{
    struct timespec now;
    volatile int step;
    long long end;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    end = now.tv_sec * 1000000000LL + now.tv_nsec + nanoseconds;
    do {
        /* The clock is a system call, which would fill the trace. */
        for (step = 0; step < 100000; step++)
            ;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    } while (now.tv_sec * 1000000000LL + now.tv_nsec < end);
}

static void rest(long nanoseconds)
{
    struct timespec time = {nanoseconds / 1000000000L, nanoseconds % 1000000000L};

    nanosleep(&time, NULL);
}

static void pin(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        fail("sched_setaffinity");
}

static void urgent(int priority)
{
    struct sched_param param = {priority};

    if (sched_setscheduler(0, SCHED_FIFO, &param))
        fail("SCHED_FIFO needs root");
}

static pthread_t start(void *(*function)(void *))
{
    pthread_t thread;

    if (pthread_create(&thread, NULL, function, NULL))
        fail("pthread_create");
    return thread;
}

/* cpu: two threads share a processor. */
static void *rival(void *unused)
{
    (void)unused;
    call_me("rival");
    pin(0);
    pthread_barrier_wait(&ready);
    compute(MILLISECONDS(150));
    return NULL;
}

static void cpu(void)
{
    start(rival);
    pin(0);
    pthread_barrier_wait(&ready);
    compute(MILLISECONDS(100));
}

/* mutex: subject waits for second, which waits for first. */
static void *first(void *unused)
{
    (void)unused;
    call_me("first");
    pthread_mutex_lock(&inner);
    pthread_barrier_wait(&ready);
    compute(MILLISECONDS(100));
    pthread_mutex_unlock(&inner);
    return NULL;
}

static void *second(void *unused)
{
    (void)unused;
    call_me("second");
    pthread_mutex_lock(&outer);
    pthread_barrier_wait(&ready);
    pthread_mutex_lock(&inner);
    compute(MILLISECONDS(5));
    pthread_mutex_unlock(&inner);
    pthread_mutex_unlock(&outer);
    return NULL;
}

static void mutex(void)
{
    pthread_t others[2] = {start(first), start(second)};

    pthread_barrier_wait(&ready);
    rest(MILLISECONDS(2));
    pthread_mutex_lock(&outer);
    compute(MILLISECONDS(2));
    pthread_mutex_unlock(&outer);
    pthread_join(others[0], NULL);
    pthread_join(others[1], NULL);
}

static int file(int flags)
{
    char path[4096];
    static char block[1 << 20];
    int fd, i;

    snprintf(path, sizeof path, "%s/waits.bytes", folder);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        fail(path);
    for (i = 0; i < FILE_BYTES / (long)sizeof block; i++)
        if (write(fd, block, sizeof block) != (long)sizeof block)
            fail(path);
    if (fsync(fd) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
        fail(path);
    close(fd);
    fd = open(path, O_RDONLY | flags);
    if (fd < 0)
        fail(path);
    unlink(path);
    return fd;
}

/* disk: reads past the page cache. */
static void disk(int fd)
{
    void *block;
    long at;

    if (posix_memalign(&block, 4096, 1 << 20))
        fail("posix_memalign");
    for (at = 0; at < FILE_BYTES; at += 1 << 20)
        if (pread(fd, block, 1 << 20, at) != 1 << 20)
            fail("pread");
}

/* fault: reads a mapped file that is not in the page cache. */
static unsigned fault(int fd)
{
    const volatile char *bytes = mmap(NULL, FILE_BYTES, PROT_READ, MAP_PRIVATE, fd, 0);
    unsigned sum = 0;
    long at;

    if (bytes == MAP_FAILED || madvise((void *)bytes, FILE_BYTES, MADV_RANDOM))
        fail("mmap");
    for (at = 0; at < FILE_BYTES; at += 1 << 16)
        sum += (unsigned)bytes[at];
    return sum;
}

/* pipe: another process answers after a while. */
static void pipe_partner(void)
{
    int ends[2], i;
    char byte = 0;

    if (pipe(ends))
        fail("pipe");
    if (fork() == 0) {
        call_me("partner");
        for (i = 0; i < 10; i++) {
            compute(MILLISECONDS(10));
            if (write(ends[1], &byte, 1) != 1)
                _exit(1);
        }
        _exit(0);
    }
    for (i = 0; i < 10; i++)
        if (read(ends[0], &byte, 1) != 1)
            fail("read");
    wait(NULL);
}

/* timer: sleeps. */
static void timer(void)
{
    int i;

    for (i = 0; i < 10; i++)
        rest(MILLISECONDS(10));
}

/* inversion: low holds a lock that subject wants, and middle keeps low from the processor. */
static void *low(void *unused)
{
    (void)unused;
    call_me("low");
    pin(0);
    urgent(1);
    pthread_mutex_lock(&inner);
    pthread_barrier_wait(&ready);
    compute(MILLISECONDS(5));
    pthread_mutex_unlock(&inner);
    return NULL;
}

static void *middle(void *unused)
{
    (void)unused;
    call_me("middle");
    pin(0);
    urgent(2);
    pthread_barrier_wait(&ready);
    rest(MILLISECONDS(2));
    compute(MILLISECONDS(80));
    return NULL;
}

static void inversion(void)
{
    pthread_t others[2] = {start(low), start(middle)};

    pin(0);
    urgent(3);
    pthread_barrier_wait(&ready);
    rest(MILLISECONDS(1));
    pthread_mutex_lock(&inner);
    compute(MILLISECONDS(1));
    pthread_mutex_unlock(&inner);
    pthread_join(others[0], NULL);
    pthread_join(others[1], NULL);
}

/* network: a server on this machine answers after a while. */
static void network(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), fd, i;
    char byte = 0;

    if (bind(listener, (void *)&address, length) || listen(listener, 1) ||
        getsockname(listener, (void *)&address, &length))
        fail("listen");
    if (fork() == 0) {
        call_me("server");
        fd = accept(listener, NULL, NULL);
        while (recv(fd, &byte, 1, 0) == 1) {
            compute(MILLISECONDS(10));
            send(fd, &byte, 1, 0);
        }
        _exit(0);
    }
    fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (void *)&address, length))
        fail("connect");
    for (i = 0; i < 10; i++)
        if (send(fd, &byte, 1, 0) != 1 || recv(fd, &byte, 1, 0) != 1)
            fail("recv");
    close(fd);
    wait(NULL);
}

static int input;

static void *subject(void *cause)
{
    call_me("subject");
    if (!strcmp(cause, "disk"))
        disk(input);
    else if (!strcmp(cause, "fault"))
        fault(input);
    else if (!strcmp(cause, "cpu"))
        cpu();
    else if (!strcmp(cause, "mutex"))
        mutex();
    else if (!strcmp(cause, "pipe"))
        pipe_partner();
    else if (!strcmp(cause, "timer"))
        timer();
    else if (!strcmp(cause, "inversion"))
        inversion();
    else if (!strcmp(cause, "network"))
        network();
    else
        exit(1);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t thread;
    int threads;

    if (count < 2)
        return 1;
    folder = count > 2 ? arguments[2] : ".";
    if (!strcmp(arguments[1], "disk") || !strcmp(arguments[1], "fault"))
        input = file(arguments[1][0] == 'd' ? O_DIRECT : 0);
    threads = !strcmp(arguments[1], "cpu") ? 2 : 3;
    pthread_barrier_init(&ready, NULL, (unsigned)threads);
    pthread_mutex_init(&outer, NULL);
    pthread_mutex_init(&inner, NULL);
    if (pthread_create(&thread, NULL, subject, arguments[1]))
        fail("pthread_create");
    pthread_join(thread, NULL);
    return 0;
}
