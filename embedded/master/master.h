/* The parts of the master's daemon.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef MASTER_H
#define MASTER_H

#include <stdio.h>

#include "../board/shared.h"

#define MOST_SLAVES 255u
#define LONGEST_PATH 512u

/* The settings, from the file that is the daemon's only argument. */
struct settings {
    char out[LONGEST_PATH], metadata[LONGEST_PATH];
    unsigned period_us, exchanges, polling, tick_us, work, urgent_ms;
    double seconds;
};

/* The master's state of a slave. */
struct slave {
    uint32_t number;
    char ram[LONGEST_PATH], socket_path[LONGEST_PATH];
    struct board_oscillator oscillator;
    struct board_shared *shared;
    int socket;
    struct hodo_master master;
    struct hodo_ring ring;
    /* Rings of messages: see work.c. */
    struct hodo_ring sends, answers;
    FILE *stream;
    uint32_t stream_epoch, known_epoch, known_broken;
    unsigned long exchanges, lost, packets;
};

/* Prints an error and exits. */
void fail(const char *what, const char *which);

/* clock.c: the TSC in nanoseconds of CLOCK_MONOTONIC_RAW. */
struct scale {
    uint64_t raw_base, base;
    uint32_t multiplier;
};
extern struct scale scale;
void clock_begin(void);
uint64_t clock_raw(void *board);
uint64_t clock_nanoseconds(uint64_t raw);
uint64_t clock_ticks(uint64_t nanoseconds);

/* slaves.c */
void slave_begin(struct slave *slave, const struct settings *settings);
void slave_connect(struct slave *slave);
void slave_wait(const struct slave *slave);
void slave_drain(struct slave *slave, const struct settings *settings);
void slave_stop(struct slave *slave, const struct settings *settings);

/* trace.c: the master's own events. `raw` is a reading of the clock. */
void trace_begin(const struct settings *settings);
void trace_start(uint64_t raw, unsigned slaves, const struct settings *settings, unsigned realtime);
void trace_exchange(const struct slave *slave, const struct hodo_exchange *exchange);
void trace_started(uint64_t raw, const struct slave *slave, uint32_t epoch);
void trace_broken(uint64_t raw, const struct slave *slave, uint32_t count);
void trace_function(uint64_t raw, int entry, uint8_t function);
void trace_message(uint64_t raw, int sent, const struct slave *slave, uint64_t id);
void trace_end(void);

/* work.c: a picture on which slaves work. A step begins a picture if one is due, and receives answers; it returns
 * whether answers are outstanding. */
void work_begin(struct slave *slave);
int work_step(struct slave *slaves, unsigned slave_count);
void work_end(const struct settings *settings);

/* Makes the folder of a trace with its metadata: a copy of `template`, with each `word` replaced by `named`. */
void trace_folder(const struct settings *settings, const char *folder, const char *template, const char *word,
                  const char *named);

#endif
