/* A ring of trace packets in shared memory, with one producer and one consumer on different cores.
 *
 * If the ring is full, old packets are kept, and the producer counts the events that it discards, as barectf does. A
 * producer that is reset continues at the same slot; the packet that it was filling is lost.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef HODO_RING_H
#define HODO_RING_H

#include "port.h"

/* The shared part; `slots` slots of `slot_bytes` bytes follow it. All other words are 0 at first. */
struct hodo_ring_words {
    /* A power of two, so that the counters can wrap. */
    uint32_t slots;
    /* Size of a slot, including its header. */
    uint32_t slot_bytes;
    uint8_t line_of_both[HODO_LINE - 2u * sizeof(uint32_t)];
    /* Number of packets that the producer has filled, modulo 2^32. */
    volatile uint32_t produced;
    uint8_t line_of_producer[HODO_LINE - sizeof(uint32_t)];
    /* Number of packets that the consumer has drained, modulo 2^32. */
    volatile uint32_t consumed;
    uint8_t line_of_consumer[HODO_LINE - sizeof(uint32_t)];
};

/* The header of a slot, before its packet. */
struct hodo_slot {
    /* Number of the producer's start; packets of different starts belong to different streams. */
    uint32_t epoch;
    /* Size of the packet. */
    uint32_t bytes;
};

/* One side of a ring. */
struct hodo_ring {
    struct hodo_ring_words *words;
    struct hodo_h2 h2;
    /* For the producer: see `struct hodo_slot`. */
    uint32_t epoch;
    /* For the consumer: number of times that it found invalid counters, for example after a reset that cleared the
     * memory. */
    uint32_t broken;
};

/* Returns the maximum size of a packet. */
uint32_t hodo_ring_packet_bytes(const struct hodo_ring *ring);

/* Producer: returns whether no slot is free. */
int hodo_ring_full(const struct hodo_ring *ring);

/* Producer: returns the place of the next packet. The ring must not be full. */
uint8_t *hodo_ring_reserve(const struct hodo_ring *ring);

/* Producer: publishes the packet, which has `bytes` bytes. */
void hodo_ring_commit(const struct hodo_ring *ring, uint32_t bytes);

/* Consumer: returns the oldest packet and its header; 0 if the ring is empty. */
const uint8_t *hodo_ring_peek(struct hodo_ring *ring, struct hodo_slot *slot);

/* Consumer: frees the slot of the packet that `hodo_ring_peek` returned. */
void hodo_ring_release(const struct hodo_ring *ring);

#endif
