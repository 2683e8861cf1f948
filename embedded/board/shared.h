/* The memory that master and slave of an emulated board share: the upper half of the slave's RAM.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef BOARD_SHARED_H
#define BOARD_SHARED_H

#include "../hodo/ring.h"
#include "../hodo/sync.h"
#include "work.h"

#define BOARD_RAM (16u << 20)
#define BOARD_SHARED (8u << 20)
#define BOARD_MAGIC 0x6f646f68u
#define BOARD_SLOTS 64u
#define BOARD_PACKET 4096u
#define BOARD_SLOT (BOARD_PACKET + (uint32_t)sizeof(struct hodo_slot))
#define BOARD_STEPS 4u
/* Nominal frequency of the emulated oscillator. */
#define BOARD_HZ 10000000u

enum { BOARD_OFF, BOARD_READY, BOARD_STOPPED };

/* A clock with deliberate errors. Times are in nanoseconds since the slave's start. */
struct board_oscillator {
    /* Converts raw readings to nanoseconds of the master: base + (raw - raw_base) * multiplier / 2^32. */
    uint64_t raw_base, base;
    uint32_t multiplier;
    uint32_t steps;
    /* Ticks at the slave's start. */
    uint64_t offset;
    /* Drift in parts per 2^32; positive if the clock is fast. */
    int64_t drift;
    /* Amplitude of the frequency's deviation in parts per billion, and its period. */
    uint64_t wander_ppb, wander_period_us;
    /* Steps: the clock jumps by `ticks` at time `at`. */
    struct {
        uint64_t at;
        int64_t ticks;
    } step[BOARD_STEPS];
};

struct board_shared {
    /* Written by the master, `magic` last. */
    volatile uint32_t magic, stop, poll, slave;
    /* Microseconds between traced ticks; 0: no ticks. */
    uint32_t tick_us;
    /* Milliseconds after the start at which an urgent task begins to take two thirds of the processor; 0: never. */
    uint32_t urgent_ms;
    /* Written by the slave: the true time of its start. */
    uint64_t started;
    struct board_oscillator oscillator;
    /* Written by the slave. */
    uint8_t line[HODO_LINE];
    volatile uint32_t state, epoch, discarded;
    uint8_t line_of_slave[HODO_LINE - 3 * sizeof(uint32_t)];
    struct hodo_sync_words sync;
    struct hodo_ring_words ring;
    uint8_t slots[BOARD_SLOTS * BOARD_SLOT];
    struct work_shared work;
};

#endif
