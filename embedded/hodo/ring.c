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
    return ring->words->produced - hodo_look(&ring->h2, &ring->words->consumed) >= ring->words->slots;
}

uint8_t *hodo_ring_reserve(const struct hodo_ring *ring)
{
    return slot_at(ring, ring->words->produced) + sizeof(struct hodo_slot);
}

void hodo_ring_commit(const struct hodo_ring *ring, uint32_t bytes)
{
    uint8_t *at = slot_at(ring, ring->words->produced);
    struct hodo_slot *slot = (struct hodo_slot *)(void *)at;

    slot->epoch = ring->epoch;
    slot->bytes = bytes;
    if (ring->h2.publish)
        ring->h2.publish(ring->h2.board, at, bytes + (uint32_t)sizeof *slot);
    hodo_tell(&ring->h2, &ring->words->produced, ring->words->produced + 1u);
}

const uint8_t *hodo_ring_peek(struct hodo_ring *ring, struct hodo_slot *slot)
{
    uint32_t produced = hodo_look(&ring->h2, &ring->words->produced);
    uint32_t waiting = produced - ring->words->consumed;
    uint8_t *at = slot_at(ring, ring->words->consumed);

    if (waiting == 0)
        return 0;
    if (ring->h2.refresh)
        ring->h2.refresh(ring->h2.board, at, ring->words->slot_bytes);
    *slot = *(const struct hodo_slot *)(const void *)at;
    if (waiting > ring->words->slots || slot->bytes > hodo_ring_packet_bytes(ring)) {
        ring->broken++;
        hodo_tell(&ring->h2, &ring->words->consumed, produced);
        return 0;
    }
    return at + sizeof *slot;
}

void hodo_ring_release(const struct hodo_ring *ring)
{
    hodo_tell(&ring->h2, &ring->words->consumed, ring->words->consumed + 1u);
}
