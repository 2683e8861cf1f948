/* Exchanges of messages between a master and a slave, which allow their clocks to be put on one timeline.
 *
 * After Bertauld and Dagenais, "Low-level trace correlation on heterogeneous embedded systems", 2017. Each exchange
 * records two pairs of matching events:
 *
 *   master sends n   ──interrupt, request──►  slave receives n
 *   master receives n+1  ◄──acknowledgement──  slave sends n+1
 *
 * Numbers are even for requests, odd for acknowledgements, and none is used twice. In a burst the slave stays in its
 * handler and polls for the next request, so only the first exchange includes its wake-up time.
 *
 * No function here waits: a step makes at most one access to shared memory, and returns the state of the exchange.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef HODO_SYNC_H
#define HODO_SYNC_H

#include "port.h"

/* Exchanges that a slave remembers until its burst ends: tracing them at once would delay the next one. */
#define HODO_BURST 8u

/* The shared memory of a master and a slave; initially zero. */
struct hodo_sync_words {
    /* Written by the master: the number of the request; bit 0: another one follows at once. */
    volatile uint32_t request;
    uint8_t line_of_master[HODO_LINE - sizeof(uint32_t)];
    /* Written by the slave: the number of the last request that it answered, plus one. */
    volatile uint32_t acknowledge;
    uint8_t line_of_slave[HODO_LINE - sizeof(uint32_t)];
};

/* An exchange as seen by one side, with readings of its own clock. */
struct hodo_exchange {
    /* Time of sending `number` (master) or `number + 1` (slave). */
    uint64_t sent;
    /* Time of receiving `number` (slave) or `number + 1` (master). */
    uint64_t received;
    /* Number of the request; even. */
    uint32_t number;
    /* Master: whether an acknowledgement came; else `received` is undefined. */
    uint32_t answered;
};

/* The result of a step. */
enum hodo_step {
    /* There is no request. */
    HODO_IDLE,
    /* The exchange is in progress: step again. */
    HODO_BUSY,
    /* The exchange is complete. */
    HODO_DONE,
    /* Master: no acknowledgement came in time. If it comes later, it is ignored. */
    HODO_LOST
};

struct hodo_slave {
    struct hodo_sync_words *words;
    struct hodo_clock clock;
    struct hodo_h2 h2;
    /* Receives each exchange, in order, at the end of a burst. */
    void (*trace)(void *data, const struct hodo_exchange *exchange);
    void *data;
    /* Number of polls for the next request of a burst before the handler gives up. */
    uint32_t patience;
    uint32_t served;
    uint32_t more;
    uint32_t answering;
    uint32_t held;
    struct hodo_exchange exchanges[HODO_BURST];
};

/* Initialises a slave whose `words`, `clock`, `h2`, `trace`, `data` and `patience` are set. A pending request is not
 * answered: the slave may have answered it before a reset. */
void hodo_slave_begin(struct hodo_slave *slave);

/* Performs one step. After HODO_DONE, `exchanges` has one more element. */
enum hodo_step hodo_slave_step(struct hodo_slave *slave);

/* Answers a request, waits for the rest of its burst, and passes the exchanges to `trace`; called by the interrupt
 * handler, or by a slave that polls. Interrupts must be masked. Returns the number of exchanges. */
uint32_t hodo_slave_handle(struct hodo_slave *slave);

struct hodo_master {
    struct hodo_sync_words *words;
    struct hodo_clock clock;
    struct hodo_h1 h1;
    struct hodo_h2 h2;
    /* Ticks after which the interrupt is raised again, and after which the exchange is lost. */
    uint64_t retry;
    uint64_t timeout;
    uint64_t raised;
    uint32_t next;
    uint32_t more;
    uint32_t interrupt;
    uint32_t state;
    struct hodo_exchange exchange;
};

/* Initialises a master whose `words`, `clock`, `h1`, `h2`, `retry` and `timeout` are set. Numbers continue after the
 * one in shared memory. */
void hodo_master_begin(struct hodo_master *master);

/* Begins an exchange. `interrupt`: raise an interrupt, because the slave does not poll. `more`: the next exchange
 * follows at once. */
void hodo_master_exchange(struct hodo_master *master, uint32_t interrupt, uint32_t more);

/* Performs one step. After HODO_DONE and HODO_LOST, `exchange` holds the exchange. */
enum hodo_step hodo_master_step(struct hodo_master *master);

#endif
