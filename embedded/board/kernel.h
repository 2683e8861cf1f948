/* A kernel of three tasks: an idle one, a working one, and an urgent one that preempts it. Tasks run to completion
 * on one stack; the urgent one starts where an interrupt would return.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef BOARD_KERNEL_H
#define BOARD_KERNEL_H

#include <stdint.h>

/* Returns the running task. */
uint32_t kernel_task(void);

/* Runs a task to completion on top of the present one. Called with interrupts masked, and unmasks them while it
 * runs. */
void kernel_run(uint32_t task, void (*function)(void));

/* Waits for `nanoseconds`, excluding the time of tasks that preempt this one. It simulates work, because an emulated
 * processor is faster than those of boards, and its speed depends on the host's load. */
void kernel_spend(uint64_t nanoseconds);

/* In slave.c: traces a switch. Interrupts are masked. */
void slave_switched(uint32_t from, uint32_t to);

#endif
