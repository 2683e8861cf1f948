/* A ring of trace packets in shared memory: a core fills it, another drains it.
 *
 * One producer, one consumer. Where the ring is full, the producer keeps its old packets and counts what it discards, as
 * barectf does. A producer that is reset goes on where it was; the packet that it was filling is lost.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef HODO_RING_H
#define HODO_RING_H

#include "port.h"

/* The shared part; `slots` slots of `slot_bytes` bytes follow it. All zero but for these two at first. */
struct hodo_ring_words {
    /* A power of two, so that the counters can wrap. */
    uint32_t slots;
    /* Of a slot, with its head. */
    uint32_t slot_bytes;
    uint8_t line_of_both[HODO_LINE - 2u * sizeof(uint32_t)];
    /* Packets that the producer has filled since ever. */
    volatile uint32_t produced;
    uint8_t line_of_producer[HODO_LINE - sizeof(uint32_t)];
    /* Packets that the consumer has drained since ever. */
    volatile uint32_t consumed;
    uint8_t line_of_consumer[HODO_LINE - sizeof(uint32_t)];
};

/* What stands before a packet in its slot. */
struct hodo_slot {
    /* How often the producer had started; a packet of another start belongs to another stream. */
    uint32_t epoch;
    /* Of the packet. */
    uint32_t bytes;
};

/* One side of a ring. */
struct hodo_ring {
    struct hodo_ring_words *words;
    struct hodo_h2 h2;
    /* The producer's: see `struct hodo_slot`. */
    uint32_t epoch;
    /* The consumer's: how often counters were found that no ring has, such as after a reset that cleared the memory. */
    uint32_t broken;
};

/* Bytes that a packet may have. */
uint32_t hodo_ring_packet_bytes(const struct hodo_ring *ring);

/* The producer: whether no slot is free. */
int hodo_ring_full(const struct hodo_ring *ring);

/* The producer: where the next packet goes. Only where the ring is not full. */
uint8_t *hodo_ring_reserve(const struct hodo_ring *ring);

/* The producer: the packet, of `bytes` bytes, is ready. */
void hodo_ring_commit(const struct hodo_ring *ring, uint32_t bytes);

/* The consumer: the oldest packet and its head; 0 where there is none. */
const uint8_t *hodo_ring_peek(struct hodo_ring *ring, struct hodo_slot *slot);

/* The consumer: the packet of the last `hodo_ring_peek` is done with. */
void hodo_ring_release(const struct hodo_ring *ring);

#endif
