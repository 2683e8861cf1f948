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

/* H2: memory that both see. `publish` writes what this core wrote there through to the memory; `refresh` makes sure that
 * it is read from there anew. Both are null where the cores' caches are coherent: the library orders accesses itself. */
struct hodo_h2 {
    void *board;
    void (*publish)(void *board, volatile void *memory, uint32_t bytes);
    void (*refresh)(void *board, volatile void *memory, uint32_t bytes);
};

/* One cache line each, so that cores without coherent caches can write back one without the other. */
#define HODO_LINE 64u

/* What the other core wrote; everything behind comes later. */
static inline uint32_t hodo_look(const struct hodo_h2 *h2, volatile uint32_t *word)
{
    uint32_t value;

    if (h2->refresh)
        h2->refresh(h2->board, word, sizeof *word);
    value = *word;
    __sync_synchronize();
    return value;
}

/* Writes what the other core looks at; everything before came earlier. */
static inline void hodo_tell(const struct hodo_h2 *h2, volatile uint32_t *word, uint32_t value)
{
    __sync_synchronize();
    *word = value;
    if (h2->publish)
        h2->publish(h2->board, word, sizeof *word);
}

#endif
