/* Platforms for barectf: destinations of its tracers' packets. They receive the generated functions as pointers.
 *
 * barectf's tracing functions are not reentrant: mask interrupts around them.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef HODO_PLATFORM_H
#define HODO_PLATFORM_H

#include "ring.h"

/* Functions of a generated tracer, with its context. */
struct hodo_tracer {
    void *context;
    /* `…_packet_set_buf`, for a ring only. */
    void (*set_buffer)(void *context, uint8_t *buffer, uint32_t bytes);
    /* `…_open_packet` with the packet's own members, and `…_close_packet`. */
    void (*open)(void *context);
    void (*close)(void *context);
};

/* Packets go into a ring in shared memory. */
struct hodo_platform_ring {
    struct hodo_tracer tracer;
    struct hodo_ring *ring;
};

/* The callbacks `is_backend_full`, `open_packet` and `close_packet`; `data` is a `struct hodo_platform_ring`. */
int hodo_platform_ring_full(void *data);
void hodo_platform_ring_open(void *data);
void hodo_platform_ring_close(void *data);

/* Packets are sent through a UART, one after the other: the receiver gets a CTF stream. */
struct hodo_platform_uart {
    struct hodo_tracer tracer;
    /* Sends a byte; waits until the UART accepts it. */
    void (*put)(void *board, uint8_t byte);
    void *board;
    const uint8_t *buffer;
    uint32_t bytes;
};

/* The same callbacks; `data` is a `struct hodo_platform_uart`. */
int hodo_platform_uart_full(void *data);
void hodo_platform_uart_open(void *data);
void hodo_platform_uart_close(void *data);

#endif
