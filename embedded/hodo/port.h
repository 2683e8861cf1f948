/* What a board must provide: a clock, H1 and H2. docs/boards.md describes how to port them to a new board.
 *
 *   clock  a counter of this core that never runs backwards
 *   H1     the master can interrupt the slave
 *   H2     both access a piece of memory
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

/* H1, on the master's side: makes the slave call hodo_slave_handle() from its interrupt handler. An interrupt may be
 * lost or repeated. */
struct hodo_h1 {
    void *board;
    void (*raise)(void *board);
};

/* H2: shared memory. `publish` writes back the cache lines of `memory`; `refresh` invalidates them. Both are null if
 * the cores' caches are coherent; the library orders accesses itself. */
struct hodo_h2 {
    void *board;
    void (*publish)(void *board, volatile void *memory, uint32_t bytes);
    void (*refresh)(void *board, volatile void *memory, uint32_t bytes);
};

/* Size of a cache line. Each core writes to lines of its own, so that cores without coherent caches do not overwrite
 * each other's words. */
#define HODO_LINE 64u

/* Loads a word that the other core writes, with acquire ordering. */
static inline uint32_t hodo_look(const struct hodo_h2 *h2, volatile uint32_t *word)
{
    uint32_t value;

    if (h2->refresh)
        h2->refresh(h2->board, word, sizeof *word);
    value = *word;
    __sync_synchronize();
    return value;
}

/* Stores a word that the other core reads, with release ordering. */
static inline void hodo_tell(const struct hodo_h2 *h2, volatile uint32_t *word, uint32_t value)
{
    __sync_synchronize();
    *word = value;
    if (h2->publish)
        h2->publish(h2->board, word, sizeof *word);
}

#endif
