/* What a board provides: its clock, H1 and H2. Porting to a new board means to write these: docs/boards.md.
 *
 *   clock  a counter of this core that never runs back
 *   H1     the master can interrupt the slave
 *   H2     both see a piece of memory
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef HODO_PORT_H
#define HODO_PORT_H

#include <stdint.h>

/* The clock of this core, in ticks. */
struct hodo_clock {
    void *board;
    uint64_t (*read)(void *board);
};

/* H1, on the master's side: makes the slave call hodo_slave_handle() from its interrupt handler. An interrupt may get
 * lost, and may come more than once. */
struct hodo_h1 {
    void *board;
    void (*raise)(void *board);
};

/* H2: memory that both see. `publish` makes what this core wrote visible to the other before anything that it writes
 * later; `refresh` makes what the other published visible here. Both order all accesses before and behind them. Where
 * caches are coherent, a full fence does for both: hodo_h2_coherent(). */
struct hodo_h2 {
    void *board;
    void (*publish)(void *board, volatile void *memory, uint32_t bytes);
    void (*refresh)(void *board, volatile void *memory, uint32_t bytes);
};

/* H2 of a board whose cores see each other's writes. */
struct hodo_h2 hodo_h2_coherent(void);

/* One cache line each, so that cores without coherent caches can write back one without the other. */
#define HODO_LINE 64u

#endif
