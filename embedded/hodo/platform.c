/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "platform.h"

int hodo_platform_ring_full(void *data)
{
    const struct hodo_platform_ring *platform = data;

    return hodo_ring_full(platform->ring);
}

void hodo_platform_ring_open(void *data)
{
    const struct hodo_platform_ring *platform = data;
    const struct hodo_tracer *tracer = &platform->tracer;

    tracer->set_buffer(tracer->context, hodo_ring_reserve(platform->ring), hodo_ring_packet_bytes(platform->ring));
    tracer->open(tracer->context);
}

void hodo_platform_ring_close(void *data)
{
    const struct hodo_platform_ring *platform = data;

    platform->tracer.close(platform->tracer.context);
    hodo_ring_commit(platform->ring, hodo_ring_packet_bytes(platform->ring));
}

int hodo_platform_uart_full(void *data)
{
    (void)data;
    return 0;
}

void hodo_platform_uart_open(void *data)
{
    const struct hodo_platform_uart *platform = data;

    platform->tracer.open(platform->tracer.context);
}

void hodo_platform_uart_close(void *data)
{
    const struct hodo_platform_uart *platform = data;
    uint32_t at;

    platform->tracer.close(platform->tracer.context);
    for (at = 0; at < platform->bytes; at++)
        platform->put(platform->board, platform->buffer[at]);
}
