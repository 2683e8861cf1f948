/* What the slave's program needs of a processor and its board.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

struct board_shared;

/* The memory that the master sees too. */
struct board_shared *board_shared(void);

/* The counter under the emulated oscillator: never wrong, and the same in all that runs. */
uint64_t board_raw(void);

/* The truth of a raw reading: nanoseconds of the master's clock. Where the processor has no counter that the master can
 * read too, of the emulator's own clock, a constant apart. */
uint64_t board_truth(uint64_t raw);

/* From now on interrupts call slave_interrupted() and slave_ticked(), the latter each `tick_us` microseconds. */
void board_start(uint32_t tick_us);

void board_mask(void);
void board_unmask(void);

/* Sleeps until an interrupt comes. Masked or not. */
void board_wait(void);

/* Sleeps for ever, whatever interrupts are pending: a processor that only waits masked would wake for each of them, and keep
 * others out. */
void board_end(void);

/* In slave.c; interrupts are masked. */
void slave_interrupted(void);
void slave_ticked(void);
/* Where an interrupt is about to return: runs what is more urgent. */
void slave_preempted(void);
int main(void);

#endif
