/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "ring.h"

static uint8_t *slot_at(const struct hodo_ring *ring, uint32_t number)
{
    uint8_t *first = (uint8_t *)(ring->words + 1);

    return first + (number & (ring->words->slots - 1u)) * ring->words->slot_bytes;
}

uint32_t hodo_ring_packet_bytes(const struct hodo_ring *ring)
{
    return ring->words->slot_bytes - (uint32_t)sizeof(struct hodo_slot);
}

int hodo_ring_full(const struct hodo_ring *ring)
{
    ring->h2.refresh(ring->h2.board, &ring->words->consumed, sizeof ring->words->consumed);
    return ring->words->produced - ring->words->consumed >= ring->words->slots;
}

uint8_t *hodo_ring_reserve(const struct hodo_ring *ring)
{
    /* The consumer may have read this slot just now: nothing is written before that is known to be over. */
    ring->h2.refresh(ring->h2.board, &ring->words->consumed, sizeof ring->words->consumed);
    return slot_at(ring, ring->words->produced) + sizeof(struct hodo_slot);
}

void hodo_ring_commit(const struct hodo_ring *ring, uint32_t bytes)
{
    uint8_t *at = slot_at(ring, ring->words->produced);
    struct hodo_slot *slot = (struct hodo_slot *)(void *)at;

    slot->epoch = ring->epoch;
    slot->bytes = bytes;
    ring->h2.publish(ring->h2.board, at, bytes + (uint32_t)sizeof *slot);
    ring->words->produced++;
    ring->h2.publish(ring->h2.board, &ring->words->produced, sizeof ring->words->produced);
}

const uint8_t *hodo_ring_peek(struct hodo_ring *ring, struct hodo_slot *slot)
{
    uint32_t produced, waiting;
    uint8_t *at;

    ring->h2.refresh(ring->h2.board, &ring->words->produced, sizeof ring->words->produced);
    produced = ring->words->produced;
    waiting = produced - ring->words->consumed;
    if (waiting == 0)
        return 0;
    at = slot_at(ring, ring->words->consumed);
    ring->h2.refresh(ring->h2.board, at, ring->words->slot_bytes);
    *slot = *(const struct hodo_slot *)(const void *)at;
    if (waiting > ring->words->slots || slot->bytes > hodo_ring_packet_bytes(ring)) {
        ring->broken++;
        ring->words->consumed = produced;
        ring->h2.publish(ring->h2.board, &ring->words->consumed, sizeof ring->words->consumed);
        return 0;
    }
    return at + sizeof *slot;
}

void hodo_ring_release(const struct hodo_ring *ring)
{
    /* The packet has been read before its slot is free. */
    ring->h2.publish(ring->h2.board, &ring->words->consumed, sizeof ring->words->consumed);
    ring->words->consumed++;
    ring->h2.publish(ring->h2.board, &ring->words->consumed, sizeof ring->words->consumed);
}
