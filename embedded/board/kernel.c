/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "kernel.h"

#include "board.h"

static uint32_t running;

/* Total time of preempting tasks, in nanoseconds. */
static volatile uint64_t taken;

uint32_t kernel_task(void)
{
    return running;
}

void kernel_run(uint32_t task, void (*function)(void))
{
    uint32_t before = running;
    uint64_t begin = board_truth(board_raw()), taken_before = taken;

    running = task;
    slave_switched(before, task);
    board_unmask();
    function();
    board_mask();
    slave_switched(task, before);
    running = before;
    /* The time of tasks that preempted this one is part of its own duration, so it is not added twice. */
    taken = taken_before + (board_truth(board_raw()) - begin);
}

static uint64_t own_time(void)
{
    uint64_t now;

    board_mask();
    now = board_truth(board_raw()) - taken;
    board_unmask();
    return now;
}

void kernel_spend(uint64_t nanoseconds)
{
    uint64_t begin = own_time();

    while (own_time() - begin < nanoseconds)
        board_wait();
}
