/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "oscillator.h"

uint64_t oscillator_scale(uint64_t value, uint32_t parts)
{
    return (value >> 32) * parts + (((value & 0xffffffffu) * parts) >> 32);
}

/* Returns the offset caused by wander, in nanoseconds: the frequency deviation falls linearly from +a to -a in half
 * a period and rises back, so the offset is a parabola above zero and then one below. Computed in microseconds so
 * that products fit 64 bits; with 5 ppm that is exact to 5 ps. */
static int64_t wandered(const struct board_oscillator *oscillator, uint64_t time)
{
    uint64_t half = oscillator->wander_period_us / 2, since, gain;

    if (half == 0 || oscillator->wander_ppb == 0)
        return 0;
    since = time / 1000 % (2 * half);
    if (since < half)
        gain = since * (half - since) / half;
    else
        gain = (since - half) * (2 * half - since) / half;
    gain = gain * oscillator->wander_ppb / 1000000;
    return since < half ? (int64_t)gain : -(int64_t)gain;
}

uint64_t oscillator_ticks(const struct board_oscillator *oscillator, uint64_t time)
{
    int64_t drift = oscillator->drift;
    uint64_t gained = oscillator_scale(time, (uint32_t)(drift < 0 ? -drift : drift));
    uint64_t shown = (drift < 0 ? time - gained : time + gained) + (uint64_t)wandered(oscillator, time);
    uint64_t ticks = oscillator->offset + shown / (1000000000u / BOARD_HZ);
    uint32_t index;

    for (index = 0; index < oscillator->steps && index < BOARD_STEPS; index++) {
        if (oscillator->step[index].at <= time)
            ticks += (uint64_t)oscillator->step[index].ticks;
    }
    return ticks;
}
