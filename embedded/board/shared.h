/* What master and slave of an emulated board share: the upper half of the slave's RAM.
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
/* Ticks a second of the emulated oscillator. */
#define BOARD_HZ 10000000u

enum { BOARD_OFF, BOARD_READY, BOARD_STOPPED };

/* A clock that is wrong on purpose. Times are in nanoseconds since the slave started. */
struct board_oscillator {
    /* How raw readings become nanoseconds of the master: base + (raw - raw_base) * multiplier / 2^32. */
    uint64_t raw_base, base;
    uint32_t multiplier;
    uint32_t steps;
    /* Ticks at the start. */
    uint64_t offset;
    /* Parts of 2^32 that the clock is fast. */
    int64_t drift;
    /* The frequency goes up and down by so many parts in 10^9, once a period. */
    uint64_t wander_ppb, wander_period_us;
    /* At a time, the clock jumps by some ticks. */
    struct {
        uint64_t at;
        int64_t ticks;
    } step[BOARD_STEPS];
};

struct board_shared {
    /* Written by the master, `magic` last. */
    volatile uint32_t magic, stop, poll, slave;
    /* Microseconds between two ticks that the slave traces; 0: none. */
    uint32_t tick_us;
    /* Milliseconds since its start after which an urgent task takes two thirds of the processor; 0: none does. */
    uint32_t urgent_ms;
    uint32_t unused[2];
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
