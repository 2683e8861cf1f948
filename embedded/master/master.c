/* The master of emulated boards: exchanges messages with each slave once a period, drains their rings, writes CTF.
 *
 *   hodo-board-master SETTINGS
 *
 * The file of settings has a word and its value per line:
 *
 *   out DIR            the existing folder of the traces
 *   metadata DIR       the folder of master.tsdl and slave.tsdl
 *   period_us N        time between bursts with a slave
 *   exchanges N        exchanges per burst, 1 to 8
 *   polling 0|1        whether slaves poll instead of waiting for an interrupt
 *   tick_us N          time between traced ticks of slaves; 0: no ticks
 *   work 0|1           whether slaves work on pictures; requires ticks
 *   urgent_ms N        time after which an urgent task wakes on slaves 1, 5, 9 …; 0: never
 *   seconds S          duration; 0: until SIGINT or SIGTERM
 *   slave RAM SOCKET OFFSET DRIFT_PPB WANDER_PPB WANDER_PERIOD_MS [AT_MS TICKS]…
 *
 * It prints `ready` when slaves may start, and a line for each slave at the end.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <x86intrin.h>

#include "master.h"

/* Time for which the master spins for an answer, in nanoseconds; after that, it sleeps between polls. */
#define SPIN 300000u

static struct slave *slaves;
static unsigned slave_count;
static volatile sig_atomic_t stopped;

void fail(const char *what, const char *which)
{
    fprintf(stderr, "hodo-board-master: %s: %s\n", which, what);
    exit(1);
}

static void stop(int signal)
{
    (void)signal;
    stopped = 1;
}

static void read_slave(char *rest, const char *line)
{
    struct slave *slave;
    struct board_oscillator *oscillator;
    unsigned long long offset, wander, period_ms;
    long long drift, at_ms, ticks;
    int used;

    if (slave_count == MOST_SLAVES)
        fail("too many slaves", line);
    slaves = realloc(slaves, (slave_count + 1) * sizeof *slaves);
    if (!slaves)
        fail("out of memory", line);
    slave = &slaves[slave_count];
    memset(slave, 0, sizeof *slave);
    slave->number = slave_count++;
    oscillator = &slave->oscillator;
    if (sscanf(rest, "%511s %511s %llu %lld %llu %llu%n", slave->ram, slave->socket_path, &offset, &drift, &wander,
               &period_ms, &used) != 6)
        fail("not as a line `slave` has to be", line);
    oscillator->offset = offset;
    oscillator->drift = (int64_t)((double)drift * 4294967296e-9);
    oscillator->wander_ppb = wander;
    oscillator->wander_period_us = period_ms * 1000;
    for (rest += used; sscanf(rest, "%lld %lld%n", &at_ms, &ticks, &used) == 2; rest += used) {
        if (oscillator->steps == BOARD_STEPS)
            fail("too many steps", line);
        oscillator->step[oscillator->steps].at = (uint64_t)at_ms * 1000000u;
        oscillator->step[oscillator->steps++].ticks = ticks;
    }
}

static void read_settings(const char *path, struct settings *settings)
{
    char line[4096], word[32];
    FILE *file = fopen(path, "r");
    int used;

    if (!file)
        fail("can't read the settings", path);
    while (fgets(line, sizeof line, file)) {
        char *rest;
        if (sscanf(line, "%31s%n", word, &used) != 1)
            continue;
        rest = line + used;
        if (!strcmp(word, "slave"))
            read_slave(rest, line);
        else if (!(!strcmp(word, "out") ? sscanf(rest, " %511[^\n]", settings->out)
                   : !strcmp(word, "metadata") ? sscanf(rest, " %511[^\n]", settings->metadata)
                   : !strcmp(word, "period_us") ? sscanf(rest, "%u", &settings->period_us)
                   : !strcmp(word, "exchanges") ? sscanf(rest, "%u", &settings->exchanges)
                   : !strcmp(word, "polling") ? sscanf(rest, "%u", &settings->polling)
                   : !strcmp(word, "tick_us") ? sscanf(rest, "%u", &settings->tick_us)
                   : !strcmp(word, "work") ? sscanf(rest, "%u", &settings->work)
                   : !strcmp(word, "urgent_ms") ? sscanf(rest, "%u", &settings->urgent_ms)
                   : !strcmp(word, "seconds") ? sscanf(rest, "%lf", &settings->seconds)
                                              : 0))
            fail("a line that is not understood", line);
    }
    fclose(file);
    if (settings->exchanges < 1 || settings->exchanges > HODO_BURST || settings->period_us == 0 || slave_count == 0)
        fail("exchanges must be 1 to 8, period_us more than 0, and there must be a slave", path);
}

/* Performs a burst of exchanges with a slave, and traces it. */
static void exchange(struct slave *slave, const struct settings *settings)
{
    const struct timespec nap = {0, 50000};
    struct hodo_exchange done[HODO_BURST];
    unsigned index, count = 0;

    for (index = 0; index < settings->exchanges; index++) {
        uint64_t begin = clock_raw(0), spin = clock_ticks(SPIN);
        enum hodo_step step;
        hodo_master_exchange(&slave->master, !settings->polling && index == 0, index + 1 < settings->exchanges);
        while ((step = hodo_master_step(&slave->master)) == HODO_BUSY) {
            if (clock_raw(0) - begin > spin)
                nanosleep(&nap, 0);
            else if (index == 0 && !settings->polling)
                sched_yield();
            else
                _mm_pause();
        }
        done[count++] = slave->master.exchange;
        if (step == HODO_LOST)
            break;
    }
    for (index = 0; index < count; index++) {
        trace_exchange(slave, &done[index]);
        slave->exchanges += done[index].answered;
        slave->lost += !done[index].answered;
    }
}

static int is_before(const struct timespec *one, const struct timespec *other)
{
    return one->tv_sec < other->tv_sec || (one->tv_sec == other->tv_sec && one->tv_nsec < other->tv_nsec);
}

/* Sleeps until a time; if slaves work, polls for their answers meanwhile. */
static void rest(const struct timespec *until, const struct settings *settings)
{
    const struct timespec nap = {0, 200000};
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    /* Once at least: on a busy machine exchanges take all of the period. */
    while (settings->work && work_step(slaves, slave_count) && is_before(&now, until)) {
        nanosleep(&nap, 0);
        clock_gettime(CLOCK_MONOTONIC, &now);
    }
    if (is_before(&now, until))
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, until, 0);
}

static void run(const struct settings *settings)
{
    struct timespec next, now;
    uint64_t begin = clock_raw(0), length = clock_ticks(1000000000u);
    unsigned index;

    clock_gettime(CLOCK_MONOTONIC, &next);
    while (!stopped && (settings->seconds <= 0 || (double)(clock_raw(0) - begin) < settings->seconds * (double)length)) {
        for (index = 0; index < slave_count && !stopped; index++)
            exchange(&slaves[index], settings);
        for (index = 0; index < slave_count; index++)
            slave_drain(&slaves[index], settings);
        next.tv_nsec += settings->period_us % 1000000 * 1000l;
        next.tv_sec += settings->period_us / 1000000 + next.tv_nsec / 1000000000;
        next.tv_nsec %= 1000000000;
        clock_gettime(CLOCK_MONOTONIC, &now);
        /* If a round takes longer than a period, the next one follows at once, and missed ones are skipped. */
        if (is_before(&next, &now))
            next = now;
        rest(&next, settings);
    }
}

int main(int count, char **arguments)
{
    struct settings settings;
    struct sched_param priority;
    struct sigaction action;
    unsigned index, realtime;

    if (count != 2)
        fail("usage: hodo-board-master SETTINGS", arguments[0]);
    memset(&settings, 0, sizeof settings);
    read_settings(arguments[1], &settings);
    memset(&action, 0, sizeof action);
    action.sa_handler = stop;
    sigaction(SIGINT, &action, 0);
    sigaction(SIGTERM, &action, 0);
    clock_begin();
    trace_begin(&settings);
    for (index = 0; index < slave_count; index++)
        slave_begin(&slaves[index], &settings);
    /* From here on, a slave finds all of its settings when it starts. */
    printf("ready\n");
    fflush(stdout);
    for (index = 0; index < slave_count; index++)
        slave_connect(&slaves[index]);
    for (index = 0; index < slave_count; index++)
        slave_wait(&slaves[index]);
    /* Real-time priority begins only now, because starting slaves need the CPU. */
    memset(&priority, 0, sizeof priority);
    priority.sched_priority = 10;
    realtime = sched_setscheduler(0, SCHED_FIFO, &priority) == 0;
    trace_start(clock_raw(0), slave_count, &settings, realtime);
    run(&settings);
    for (index = 0; index < slave_count; index++)
        slave_stop(&slaves[index], &settings);
    trace_end();
    work_end(&settings);
    printf("realtime %u\n", realtime);
    return 0;
}
