/* A kernel of three tasks: one that idles, one that works, and an urgent one that takes the processor from it. Tasks run
 * to their end, on one stack; the urgent one where an interrupt would return.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef BOARD_KERNEL_H
#define BOARD_KERNEL_H

#include <stdint.h>

/* The task that runs. */
uint32_t kernel_task(void);

/* Runs a task from another one's place, to its end. Interrupts are masked; they are not while it runs. */
void kernel_run(uint32_t task, void (*function)(void));

/* Lets `nanoseconds` of this task's own time pass: what more urgent tasks take does not count. An emulated processor is
 * much faster than those of boards, and shares its own with others: this is what makes it as slow as it should be. */
void kernel_spend(uint64_t nanoseconds);

/* In slave.c: traces a switch. Interrupts are masked. */
void slave_switched(uint32_t from, uint32_t to);

#endif
