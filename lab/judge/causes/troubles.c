// record: kernel
// build: -O2 -pthread
// threads: holder,waiter
// case: a lock that is held too long
// run: lock
// finds: wait for locks|holder
// case: reads of one byte each
// run: small-reads {program}
// finds: small reads|of 1 bytes
// case: more threads than processors
// run: contention
// finds: CPUs are contended
// case: a thread that moves from processor to processor
// run: migrations
// finds: CPU
// case: an interrupt for each of many packets
// run: interrupts
// finds: NET_RX
// case: threads that calculate and sleep in turn
// run: quiet
// healthy:

/* Programs with one planted trouble each, for kernel events. The first argument names it:
 *
 *   lock FILE         four threads need a mutex that one of them holds for 20 ms at a time
 *   disk FILE         reads blocks from the device that holds FILE, past the page cache
 *   small-reads FILE  reads FILE byte by byte
 *   contention        four threads compute on one CPU
 *   migrations        a thread moves itself to the other CPU after every 50 us
 *   interrupts        sends packets to itself: each is a soft interrupt
 *   quiet             two threads compute and sleep in turn */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void compute(double seconds)
{
    for (double end = now() + seconds; now() < end;)
        ;
}

static void pause_for(double seconds)
{
    struct timespec time = { 0, (long)(seconds * 1e9) };
    nanosleep(&time, NULL);
}

static void name(const char *name)
{
    prctl(PR_SET_NAME, name);
}

static void on_cpu(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void start(int count, void *(*run)(void *))
{
    pthread_t threads[8];
    for (long i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, run, (void *)i);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *locks(void *number)
{
    int holds = number == 0;
    name(holds ? "holder" : "waiter");
    for (double end = now() + 1; now() < end;) {
        pthread_mutex_lock(&mutex);
        if (holds)
            pause_for(0.02);
        else
            compute(0.0003);
        pthread_mutex_unlock(&mutex);
        compute(0.0003);
    }
    return NULL;
}

static int disk(const char *file)
{
    enum { BLOCK = 4096 };
    void *block;
    int fd = open(file, O_RDONLY | O_DIRECT);
    if (fd < 0 || posix_memalign(&block, BLOCK, BLOCK))
        return 1;
    off_t size = lseek(fd, 0, SEEK_END) / BLOCK;
    unsigned place = 1;
    for (double end = now() + 1; now() < end;) {
        place = place * 1103515245 + 12345;
        if (pread(fd, block, BLOCK, (off_t)(place / 8 % size) * BLOCK) != BLOCK)
            return 1;
        compute(0.0002);
    }
    return 0;
}

static int small_reads(const char *file)
{
    char letter;
    int fd = open(file, O_RDONLY);
    if (fd < 0)
        return 1;
    for (int i = 0; i < 100000; i++)
        if (read(fd, &letter, 1) != 1)
            lseek(fd, 0, SEEK_SET);
    return 0;
}

static void *contends(void *number)
{
    (void)number;
    on_cpu(0);
    compute(0.7);
    return NULL;
}

static void migrate(void)
{
    for (int i = 0; i < 3000; i++) {
        on_cpu(i % 2);
        compute(0.00005);
    }
}

static int interrupts(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int receiver = socket(AF_INET, SOCK_DGRAM, 0), sender = socket(AF_INET, SOCK_DGRAM, 0);
    if (bind(receiver, (struct sockaddr *)&address, length) || getsockname(receiver, (struct sockaddr *)&address, &length))
        return 1;
    char packet[1024] = { 0 };
    for (int i = 0; i < 50000; i++)
        sendto(sender, packet, sizeof packet, 0, (struct sockaddr *)&address, length);
    return 0;
}

static void *quiet(void *number)
{
    on_cpu((long)number % 2);
    for (int i = 0; i < 20; i++) {
        compute(0.005);
        pause_for(0.02);
    }
    return NULL;
}

int main(int count, char **arguments)
{
    const char *trouble = count > 1 ? arguments[1] : "", *file = count > 2 ? arguments[2] : arguments[0];
    if (!strcmp(trouble, "lock"))
        start(4, locks);
    else if (!strcmp(trouble, "disk"))
        return disk(file);
    else if (!strcmp(trouble, "small-reads"))
        return small_reads(file);
    else if (!strcmp(trouble, "contention"))
        start(4, contends);
    else if (!strcmp(trouble, "migrations"))
        migrate();
    else if (!strcmp(trouble, "interrupts"))
        return interrupts();
    else if (!strcmp(trouble, "quiet"))
        start(2, quiet);
    else {
        fputs("lock, disk, small-reads, contention, migrations, interrupts or quiet?\n", stderr);
        return 2;
    }
    return 0;
}
