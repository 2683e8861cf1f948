/* Emulated oscillators: offset, drift, wander and steps, in integers.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef BOARD_OSCILLATOR_H
#define BOARD_OSCILLATOR_H

#include "shared.h"

/* Returns `value` times `parts` / 2^32, rounded down, without a 128-bit product. */
uint64_t oscillator_scale(uint64_t value, uint32_t parts);

/* Returns the clock's ticks `time` nanoseconds after the slave's start. */
uint64_t oscillator_ticks(const struct board_oscillator *oscillator, uint64_t time);

#endif
