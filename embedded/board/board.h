/* What the slave's program requires of a processor and its board.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef BOARD_H
#define BOARD_H

#include <stdint.h>

struct board_shared;

/* Returns the memory that is shared with the master. */
struct board_shared *board_shared(void);

/* Reads the counter from which the emulated oscillator is computed: exact, and monotonic. */
uint64_t board_raw(void);

/* Converts a raw reading to true time: nanoseconds of the master's clock. If the processor has no counter in common
 * with the master, nanoseconds of the emulator's clock, which differ by a constant. */
uint64_t board_truth(uint64_t raw);

/* Enables interrupts: they call slave_interrupted(), and slave_ticked() every `tick_us` microseconds. */
void board_start(uint32_t tick_us);

void board_mask(void);
void board_unmask(void);

/* Sleeps until an interrupt is pending, masked or not. */
void board_wait(void);

/* Sleeps for ever with all interrupts disabled: with interrupts only masked, each pending one would wake the
 * processor and take host CPU time. */
void board_end(void);

/* Defined in slave.c; called with interrupts masked. */
void slave_interrupted(void);
void slave_ticked(void);
/* Called before an interrupt returns: runs the urgent task if it is due. */
void slave_preempted(void);
int main(void);

#endif
