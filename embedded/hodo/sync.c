/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "sync.h"

enum { AT_REST, SENDING, RAISING, WAITING };

void hodo_slave_begin(struct hodo_slave *slave)
{
    slave->served = hodo_look(&slave->h2, &slave->words->request) & ~1u;
    slave->more = 0;
    slave->answering = 0;
    slave->held = 0;
}

enum hodo_step hodo_slave_step(struct hodo_slave *slave)
{
    struct hodo_exchange *exchange = &slave->exchanges[slave->held % HODO_BURST];
    uint32_t request;

    if (slave->answering) {
        exchange->sent = slave->clock.read(slave->clock.board);
        hodo_tell(&slave->h2, &slave->words->acknowledge, slave->served + 1u);
        slave->answering = 0;
        slave->held++;
        return HODO_DONE;
    }
    request = hodo_look(&slave->h2, &slave->words->request);
    if ((request & ~1u) == slave->served)
        return HODO_IDLE;
    exchange->received = slave->clock.read(slave->clock.board);
    exchange->number = request & ~1u;
    exchange->answered = 1;
    slave->served = request & ~1u;
    slave->more = request & 1u;
    slave->answering = 1;
    return HODO_BUSY;
}

uint32_t hodo_slave_handle(struct hodo_slave *slave)
{
    uint32_t patience = 0, count = 0, index;

    for (;;) {
        enum hodo_step step = hodo_slave_step(slave);
        if (step == HODO_DONE) {
            count++;
            patience = slave->patience;
            if (!slave->more || slave->held == HODO_BURST)
                break;
        } else if (step == HODO_IDLE && patience-- == 0) {
            break;
        }
    }
    for (index = 0; index < slave->held; index++)
        slave->trace(slave->data, &slave->exchanges[index]);
    slave->held = 0;
    return count;
}

void hodo_master_begin(struct hodo_master *master)
{
    master->next = (hodo_look(&master->h2, &master->words->request) & ~1u) + 2u;
    master->state = AT_REST;
}

void hodo_master_exchange(struct hodo_master *master, uint32_t interrupt, uint32_t more)
{
    /* 0 stands for no request. */
    if (master->next == 0)
        master->next = 2;
    master->exchange.number = master->next;
    master->exchange.answered = 0;
    master->next += 2;
    master->interrupt = interrupt;
    master->more = more ? 1u : 0u;
    master->state = SENDING;
}

static enum hodo_step wait_for_answer(struct hodo_master *master)
{
    uint32_t answer = hodo_look(&master->h2, &master->words->acknowledge);
    uint64_t now = master->clock.read(master->clock.board);

    if (answer == master->exchange.number + 1u) {
        master->exchange.received = now;
        master->exchange.answered = 1;
        master->state = AT_REST;
        return HODO_DONE;
    }
    if (now - master->exchange.sent >= master->timeout) {
        master->state = AT_REST;
        return HODO_LOST;
    }
    if (now - master->raised >= master->retry) {
        /* The interrupt may have been lost, or the slave may have left a burst. */
        master->raised = now;
        master->h1.raise(master->h1.board);
    }
    return HODO_BUSY;
}

enum hodo_step hodo_master_step(struct hodo_master *master)
{
    switch (master->state) {
    case SENDING:
        master->exchange.sent = master->clock.read(master->clock.board);
        hodo_tell(&master->h2, &master->words->request, master->exchange.number | master->more);
        master->raised = master->exchange.sent;
        master->state = master->interrupt ? RAISING : WAITING;
        return HODO_BUSY;
    case RAISING:
        master->h1.raise(master->h1.board);
        master->state = WAITING;
        return HODO_BUSY;
    case WAITING:
        return wait_for_answer(master);
    default:
        return HODO_IDLE;
    }
}
