/* Exchanges between a master and a slave, from which their clocks can be put on one timeline.
 *
 * After Bertauld and Dagenais, "Low-level trace correlation on heterogeneous embedded systems", 2017. Each exchange leaves
 * two pairs of matching events:
 *
 *   master sends n   ──interrupt, request──►  slave receives n
 *   master receives n+1  ◄──acknowledgement──  slave sends n+1
 *
 * Numbers are even for requests, odd for acknowledgements, and none is used twice. In a burst the slave stays in its
 * handler and polls for the next request, so that all exchanges but the first are free of the time that it takes to wake up.
 *
 * Neither side waits in here: a step makes at most one access to shared memory, and says what became of it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef HODO_SYNC_H
#define HODO_SYNC_H

#include "port.h"

/* Exchanges that a slave remembers until its burst ends: tracing them at once would delay the next one. */
#define HODO_BURST 8u

/* The shared memory of a master and a slave. All zero at first. */
struct hodo_sync_words {
    /* Written by the master: the number of the request; bit 0: another one follows at once. */
    volatile uint32_t request;
    uint8_t line_of_master[HODO_LINE - sizeof(uint32_t)];
    /* Written by the slave: the number of the last request that it answered, plus one. */
    volatile uint32_t acknowledge;
    uint8_t line_of_slave[HODO_LINE - sizeof(uint32_t)];
};

/* One side's view of an exchange: readings of its own clock. */
struct hodo_exchange {
    /* When it sent: the master `number`, the slave `number + 1`. */
    uint64_t sent;
    /* When it received: the slave `number`, the master `number + 1`. */
    uint64_t received;
    /* Even. */
    uint32_t number;
    /* The master: whether an acknowledgement came; else `received` says nothing. */
    uint32_t answered;
};

/* What a step came to. */
enum hodo_step {
    /* Nothing is asked, or begun. */
    HODO_IDLE,
    /* The exchange goes on: step again. */
    HODO_BUSY,
    /* The exchange is over. */
    HODO_DONE,
    /* The master: no acknowledgement came in time. It may still come; nothing takes it for another one. */
    HODO_LOST
};

struct hodo_slave {
    struct hodo_sync_words *words;
    struct hodo_clock clock;
    struct hodo_h2 h2;
    /* Gets each exchange, in order, when no further one is expected. */
    void (*trace)(void *data, const struct hodo_exchange *exchange);
    void *data;
    /* How often the handler looks for the next exchange of a burst before it gives up. */
    uint32_t patience;
    uint32_t served;
    uint32_t more;
    uint32_t answering;
    uint32_t held;
    struct hodo_exchange exchanges[HODO_BURST];
};

/* Begins with `words`, `clock`, `h2`, `trace`, `data` and `patience` set. A request that is pending is not answered: if
 * this slave was reset, it may have been answered before. */
void hodo_slave_begin(struct hodo_slave *slave);

/* One step. HODO_DONE: an exchange more is in `exchanges`. */
enum hodo_step hodo_slave_step(struct hodo_slave *slave);

/* What the interrupt handler calls, and a slave that polls: answers what is asked, waits for the rest of a burst, and
 * traces. Interrupts must be masked. Returns how many exchanges there were. */
uint32_t hodo_slave_handle(struct hodo_slave *slave);

struct hodo_master {
    struct hodo_sync_words *words;
    struct hodo_clock clock;
    struct hodo_h1 h1;
    struct hodo_h2 h2;
    /* Ticks after which the interrupt is raised again, and after which the exchange is given up. */
    uint64_t retry;
    uint64_t timeout;
    uint64_t raised;
    uint32_t next;
    uint32_t more;
    uint32_t interrupt;
    uint32_t state;
    struct hodo_exchange exchange;
};

/* Begins with `words`, `clock`, `h1`, `h2`, `retry` and `timeout` set. Goes on behind the number that it finds in
 * shared memory. */
void hodo_master_begin(struct hodo_master *master);

/* Begins an exchange: with an interrupt, or for a slave that polls; with `more` where the next one follows at once. */
void hodo_master_exchange(struct hodo_master *master, uint32_t interrupt, uint32_t more);

/* One step. HODO_DONE and HODO_LOST: it is in `exchange`. */
enum hodo_step hodo_master_step(struct hodo_master *master);

#endif
