/* Checks every bounded execution of the protocol and of the ring, by enumeration of all reachable states.
 *
 * A step of sync.c makes at most one access to shared memory, so interleaving steps covers all interleavings of
 * accesses. A state is a copy of the real structs. Faults: lost and repeated interrupts, an acknowledgement after
 * the master's timeout, a reset of the slave at any point, a full ring.
 *
 * usage: enumerate; prints the number of states. If a property is violated, prints it and exits with code 1.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ring.h"
#include "sync.h"

#define EXCHANGES 4u
#define IN_BURST 2u
#define FAULTS 3u
#define RETRY 10u
#define TIMEOUT 1000u
#define RESETS 2u

/* A state of master, slave, memory and interrupt, and the history for the checks. */
struct world {
    struct hodo_sync_words words;
    struct hodo_master master;
    struct hodo_slave slave;
    /* Number of pending interrupts. */
    uint32_t pending;
    /* Whether the slave is in its handler, and its remaining polls for the rest of a burst. */
    uint32_t handling, patience;
    uint32_t begun, faults, resets;
    uint64_t time;
    /* By exchange: what happened, and how often it was traced. */
    uint8_t sent[EXCHANGES], received[EXCHANGES], answered[EXCHANGES], done[EXCHANGES];
    uint8_t traced_by_master[EXCHANGES], traced_by_slave[EXCHANGES];
    /* Whether the slave was reset during the exchange, which then need not be answered. */
    uint8_t reset_during[EXCHANGES];
};

static struct world world;
static const char *broken;

static void require(int holds, const char *what)
{
    if (!holds && !broken)
        broken = what;
}

static uint32_t place(uint32_t number)
{
    require(number >= 2 && number % 2 == 0 && number / 2 <= EXCHANGES, "a number that no exchange has");
    return broken ? 0 : number / 2 - 1;
}

static uint64_t time_of_master(void *board)
{
    (void)board;
    return world.time;
}

/* The slave reads its clock when it receives and when it answers an exchange. */
static uint64_t time_of_slave(void *board)
{
    (void)board;
    if (world.slave.answering) {
        uint32_t at = place(world.slave.served);
        require(world.received[at] == 1, "answered what was not received");
        require(world.words.acknowledge != world.slave.served + 1, "acknowledged before the clock was read");
        world.answered[at]++;
        require(world.answered[at] == 1, "an exchange was answered twice");
    } else {
        uint32_t at = place(world.words.request & ~1u);
        require(world.sent[at] == 1, "received before it was sent");
        world.received[at]++;
        require(world.received[at] == 1, "an exchange was received twice");
    }
    return 0;
}

static void raise_interrupt(void *board)
{
    (void)board;
    if (world.pending < 2)
        world.pending++;
}

static void trace(void *data, const struct hodo_exchange *exchange)
{
    uint32_t at = place(exchange->number);

    (void)data;
    world.traced_by_slave[at]++;
    require(world.traced_by_slave[at] == 1, "the slave traced a number twice");
}

/* The visited states. */
static struct world *states;
static uint32_t *buckets;
static size_t count, capacity;

/* By state: the numbers of its successors without a fault or a timeout. */
static uint32_t (*fair)[4];

static uint64_t hash(const void *memory, size_t bytes)
{
    const uint8_t *at = memory;
    uint64_t value = 14695981039346656037u;

    while (bytes--)
        value = (value ^ *at++) * 1099511628211u;
    return value;
}

static void grow(void)
{
    size_t index;

    capacity = capacity ? 2 * capacity : 1u << 12;
    states = realloc(states, capacity * sizeof *states);
    fair = realloc(fair, capacity * sizeof *fair);
    buckets = realloc(buckets, 4 * capacity * sizeof *buckets);
    if (!states || !fair || !buckets) {
        fputs("out of memory\n", stderr);
        exit(2);
    }
    memset(buckets, 0, 4 * capacity * sizeof *buckets);
    for (index = 0; index < count; index++) {
        size_t bucket = hash(&states[index], sizeof world) % (4 * capacity);
        while (buckets[bucket])
            bucket = (bucket + 1) % (4 * capacity);
        buckets[bucket] = (uint32_t)index + 1;
    }
}

/* Returns the number of the present state, and adds it if it is new. */
static uint32_t visit(void)
{
    size_t bucket;

    if (count == capacity)
        grow();
    bucket = hash(&world, sizeof world) % (4 * capacity);
    for (; buckets[bucket]; bucket = (bucket + 1) % (4 * capacity)) {
        if (!memcmp(&states[buckets[bucket] - 1], &world, sizeof world))
            return buckets[bucket] - 1;
    }
    memcpy(&states[count], &world, sizeof world);
    memset(fair[count], 0xff, sizeof fair[count]);
    buckets[bucket] = (uint32_t)++count;
    return (uint32_t)count - 1;
}

static void begin(void)
{
    memset(&world, 0, sizeof world);
    world.master.words = world.slave.words = &world.words;
    world.master.clock.read = time_of_master;
    world.slave.clock.read = time_of_slave;
    world.master.h1.raise = raise_interrupt;
    world.master.retry = RETRY;
    world.master.timeout = TIMEOUT;
    world.slave.trace = trace;
    world.slave.patience = 1;
    hodo_master_begin(&world.master);
    hodo_slave_begin(&world.slave);
}

/* Performs the master's next step, `waited` ticks after the last interrupt that it raised. */
static void step_of_master(uint64_t waited)
{
    uint32_t state = world.master.state, at;
    enum hodo_step step;

    if (state == 0) {
        hodo_master_exchange(&world.master, world.begun % IN_BURST == 0, world.begun % IN_BURST + 1 < IN_BURST);
        world.begun++;
        return;
    }
    at = place(world.master.exchange.number);
    world.time = state == 1 ? 0 : world.master.raised + waited;
    if (state == 1)
        world.sent[at] = 1;
    step = hodo_master_step(&world.master);
    if (step == HODO_DONE) {
        require(world.answered[at] == 1, "an acknowledgement that the slave did not send");
        world.done[at] = 1;
    }
    if (step == HODO_DONE || step == HODO_LOST) {
        world.traced_by_master[at]++;
        require(world.traced_by_master[at] == 1, "the master traced a number twice");
    }
    world.time = 0;
    if (world.master.raised != 0)
        world.master.raised = 0;
}

/* Performs one step of hodo_slave_handle(). */
static void step_of_slave(void)
{
    enum hodo_step step;

    if (!world.handling) {
        world.pending--;
        world.handling = 1;
        world.patience = 0;
        return;
    }
    step = hodo_slave_step(&world.slave);
    if (step == HODO_DONE) {
        world.patience = world.slave.patience;
        if (!world.slave.more || world.slave.held == HODO_BURST)
            world.handling = 0;
    } else if (step == HODO_IDLE && world.patience-- == 0) {
        world.handling = 0;
    }
    if (!world.handling) {
        uint32_t index;
        for (index = 0; index < world.slave.held; index++)
            trace(0, &world.slave.exchanges[index]);
        world.slave.held = 0;
        world.patience = 0;
        memset(world.slave.exchanges, 0, sizeof world.slave.exchanges);
    }
}

/* Restarts the slave: only shared memory survives. */
static void reset(void)
{
    world.resets++;
    world.handling = world.patience = 0;
    memset(world.slave.exchanges, 0, sizeof world.slave.exchanges);
    if (world.master.state != 0)
        world.reset_during[place(world.master.exchange.number)] = 1;
    hodo_slave_begin(&world.slave);
}

/* Makes a move if it is possible; returns whether it is. */
static int move(uint32_t kind)
{
    int waiting = world.master.state == 3;

    switch (kind) {
    case 0:
        if (world.master.state == 0 && world.begun == EXCHANGES)
            return 0;
        step_of_master(0);
        return 1;
    case 1:
        if (!world.handling && !world.pending)
            return 0;
        step_of_slave();
        return 1;
    case 2:
        /* Time passes until the interrupt is raised again. */
        if (!waiting || world.pending)
            return 0;
        step_of_master(RETRY);
        return 1;
    case 3:
        if (!waiting || world.faults == FAULTS)
            return 0;
        world.faults++;
        step_of_master(TIMEOUT);
        return 1;
    case 4:
        if (!world.pending || world.faults == FAULTS)
            return 0;
        world.faults++;
        world.pending--;
        return 1;
    case 5:
        if (world.handling || world.pending == 2 || world.faults == FAULTS)
            return 0;
        world.faults++;
        world.pending++;
        return 1;
    case 6:
        if (world.resets == RESETS || world.faults == FAULTS)
            return 0;
        world.faults++;
        reset();
        return 1;
    default:
        return 0;
    }
}

static int enumerate(void)
{
    size_t index;

    begin();
    visit();
    for (index = 0; index < count && !broken; index++) {
        uint32_t kind, next;
        for (kind = 0; kind < 7 && !broken; kind++) {
            memcpy(&world, &states[index], sizeof world);
            if (!move(kind))
                continue;
            next = visit();
            if (kind < 3)
                fair[index][kind] = next;
        }
    }
    return !broken;
}

/* Checks liveness: without further faults, every exchange is answered, unless the slave was reset during it. */
static void answered_in_the_end(size_t *waiting)
{
    uint8_t *good = calloc(count, 1);
    size_t index, before, now = 0;

    if (!good)
        exit(2);
    do {
        before = now;
        now = 0;
        for (index = count; index-- > 0;) {
            uint32_t kind, at = states[index].master.exchange.number / 2 - 1;
            if (states[index].master.state == 0 || states[index].reset_during[at])
                good[index] = 1;
            for (kind = 0; kind < 3 && !good[index]; kind++)
                good[index] = fair[index][kind] != UINT32_MAX && good[fair[index][kind]];
            now += good[index];
        }
    } while (now != before);
    for (index = 0; index < count; index++) {
        require(good[index], "an exchange waits for ever");
        *waiting += states[index].master.state != 0;
    }
    free(good);
}

/* The ring: steps of producer and consumer. A packet is its number, twice. */
#define SLOTS 2u
#define PACKETS 5u

struct tube {
    struct hodo_ring_words words;
    uint32_t memory[SLOTS][4];
    struct hodo_ring producer, consumer;
    uint32_t step, written, taken, discarded, reading, resets;
};

static struct tube tube;

static struct tube *tubes;
static size_t tube_count;

static void visit_tube(void)
{
    size_t index;

    for (index = 0; index < tube_count; index++) {
        if (!memcmp(&tubes[index], &tube, sizeof tube))
            return;
    }
    tubes = realloc(tubes, (tube_count + 1) * sizeof tube);
    if (!tubes)
        exit(2);
    memcpy(&tubes[tube_count++], &tube, sizeof tube);
}

static int produce(void)
{
    uint32_t *packet;

    if (tube.written + tube.discarded == PACKETS)
        return 0;
    if (tube.step == 0 && hodo_ring_full(&tube.producer)) {
        tube.discarded++;
        return 1;
    }
    packet = (uint32_t *)(void *)hodo_ring_reserve(&tube.producer);
    if (tube.step < 2) {
        packet[tube.step++] = tube.written + 1;
        return 1;
    }
    tube.step = 0;
    tube.written++;
    hodo_ring_commit(&tube.producer, 8);
    return 1;
}

static int consume(void)
{
    struct hodo_slot slot;
    const uint32_t *packet = (const uint32_t *)(const void *)hodo_ring_peek(&tube.consumer, &slot);

    require(tube.consumer.broken == 0, "the consumer found counters that no ring has");
    if (!packet)
        return 0;
    require(packet[tube.reading] == tube.taken + 1, "a packet was lost, repeated, or overwritten");
    require(slot.bytes == 8, "a packet of another size");
    if (tube.reading++ == 1) {
        tube.reading = 0;
        tube.taken++;
        hodo_ring_release(&tube.consumer);
    }
    return 1;
}

static void begin_tube(void)
{
    memset(&tube, 0, sizeof tube);
    tube.words.slots = SLOTS;
    tube.words.slot_bytes = sizeof tube.memory[0];
    tube.producer.words = tube.consumer.words = &tube.words;
    /* Counters wrap during the test. */
    tube.words.produced = tube.words.consumed = UINT32_MAX - 1;
}

static void enumerate_ring(void)
{
    size_t index, overrun = 0;

    begin_tube();
    visit_tube();
    for (index = 0; index < tube_count && !broken; index++) {
        memcpy(&tube, &tubes[index], sizeof tube);
        if (produce())
            visit_tube();
        memcpy(&tube, &tubes[index], sizeof tube);
        if (consume())
            visit_tube();
        memcpy(&tube, &tubes[index], sizeof tube);
        if (tube.resets < 2) {
            tube.resets++;
            tube.step = 0;
            tube.producer.epoch++;
            visit_tube();
        }
        overrun += tubes[index].discarded > 0;
    }
    require(overrun > 0, "the ring was never full");
    printf("ring: %lu states, %lu of them after an overrun\n", (unsigned long)tube_count, (unsigned long)overrun);
}

int main(void)
{
    size_t waiting = 0;

    if (enumerate())
        answered_in_the_end(&waiting);
    printf("protocol: %lu states, in %lu of them the master waits\n", (unsigned long)count, (unsigned long)waiting);
    if (!broken)
        enumerate_ring();
    if (broken) {
        printf("BROKEN: %s\n", broken);
        return 1;
    }
    return 0;
}
