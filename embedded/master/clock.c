/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <time.h>
#include <x86intrin.h>

#include "../board/oscillator.h"
#include "master.h"

struct scale scale;

static uint64_t monotonic_raw(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Reads both clocks at one moment: of several attempts, the one with the shortest interval. */
static void both(uint64_t *raw, uint64_t *nanoseconds)
{
    uint64_t best = UINT64_MAX;
    int round;

    for (round = 0; round < 100; round++) {
        uint64_t before = clock_raw(0), now = monotonic_raw(), behind = clock_raw(0);
        if (behind - before < best) {
            best = behind - before;
            *raw = before + (behind - before) / 2;
            *nanoseconds = now;
        }
    }
}

void clock_begin(void)
{
    const struct timespec pause = {0, 200000000};
    uint64_t raw, nanoseconds, parts;

    both(&scale.raw_base, &scale.base);
    nanosleep(&pause, 0);
    both(&raw, &nanoseconds);
    /* Below 2^32, as the TSC runs at more than 1 GHz. */
    parts = ((nanoseconds - scale.base) << 32) / (raw - scale.raw_base);
    if (parts == 0 || parts > UINT32_MAX)
        fail("the TSC of this processor runs at less than 1 GHz", "clock");
    scale.multiplier = (uint32_t)parts;
}

uint64_t clock_raw(void *board)
{
    uint64_t value;

    (void)board;
    /* Earlier loads are complete, and later instructions have not begun. */
    _mm_lfence();
    value = __rdtsc();
    _mm_lfence();
    return value;
}

uint64_t clock_nanoseconds(uint64_t raw)
{
    return scale.base + oscillator_scale(raw - scale.raw_base, scale.multiplier);
}

uint64_t clock_ticks(uint64_t nanoseconds)
{
    return (nanoseconds << 32) / scale.multiplier;
}
