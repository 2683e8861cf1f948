/* The program of a slave: it answers the master, traces what it does, and ticks.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "../hodo/platform.h"
#include "board.h"
#include "oscillator.h"
#include "slave_trace.h"

/* How often the handler looks for the next exchange of a burst: longer than the master takes to go on, shorter than what
 * one would notice. */
#define PATIENCE 60000u

static struct slave_trace_default_ctx context;
static struct hodo_ring ring;
static struct hodo_platform_ring platform;
static struct hodo_slave slave;
static struct board_oscillator oscillator;
static uint64_t started, shown, truth;
static uint32_t number_of_slave;

/* The time and the truth of what is traced next. */
static void stamp(uint64_t raw)
{
    truth = board_truth(raw);
    shown = oscillator_ticks(&oscillator, truth - started);
}

#define TRACE(raw, event, ...)                                            \
    do {                                                                  \
        stamp(raw);                                                       \
        slave_trace_trace_##event(&context, truth, __VA_ARGS__);          \
    } while (0)

static uint64_t shown_time(void *data)
{
    (void)data;
    return shown;
}

static uint64_t raw_time(void *data)
{
    (void)data;
    return board_raw();
}

static uint64_t unique(uint32_t number)
{
    return ((uint64_t)number_of_slave << 32) | number;
}

static void trace_exchange(void *data, const struct hodo_exchange *exchange)
{
    (void)data;
    TRACE(exchange->received, sync_recv, unique(exchange->number));
    TRACE(exchange->sent, sync_send, unique(exchange->number + 1));
}

static void open_packet(void *data)
{
    slave_trace_default_open_packet(data, number_of_slave);
}

static void close_packet(void *data)
{
    slave_trace_default_close_packet(data);
}

static void set_buffer(void *data, uint8_t *buffer, uint32_t bytes)
{
    slave_trace_packet_set_buf(data, buffer, bytes);
}

void slave_interrupted(void)
{
    hodo_slave_handle(&slave);
}

void slave_ticked(void)
{
    static uint32_t ticks;

    TRACE(board_raw(), tick, ticks++);
}

static void begin(struct board_shared *shared)
{
    struct slave_trace_platform_callbacks callbacks;
    uint32_t epoch = shared->epoch + 1;

    oscillator = shared->oscillator;
    number_of_slave = shared->slave;
    started = board_truth(board_raw());
    ring.words = &shared->ring;
    ring.epoch = epoch;
    platform.ring = &ring;
    platform.tracer.context = &context;
    platform.tracer.set_buffer = set_buffer;
    platform.tracer.open = open_packet;
    platform.tracer.close = close_packet;
    callbacks.slave_clk_clock_get_value = shown_time;
    callbacks.is_backend_full = hodo_platform_ring_full;
    callbacks.open_packet = hodo_platform_ring_open;
    callbacks.close_packet = hodo_platform_ring_close;
    while (hodo_ring_full(&ring))
        ;
    slave_trace_init(&context, hodo_ring_reserve(&ring), hodo_ring_packet_bytes(&ring), callbacks, &platform);
    stamp(board_raw());
    hodo_platform_ring_open(&platform);
    slave.words = &shared->sync;
    slave.clock.read = raw_time;
    slave.trace = trace_exchange;
    slave.patience = PATIENCE;
    hodo_slave_begin(&slave);
    TRACE(board_raw(), slave_start, epoch);
    shared->epoch = epoch;
}

int main(void)
{
    struct board_shared *shared = board_shared();

    while (shared->magic != BOARD_MAGIC)
        ;
    __sync_synchronize();
    begin(shared);
    board_start(shared->tick_us);
    __sync_synchronize();
    shared->state = BOARD_READY;
    while (!shared->stop) {
        if (shared->poll) {
            board_mask();
            hodo_slave_handle(&slave);
            board_unmask();
        } else {
            board_wait();
        }
    }
    board_mask();
    stamp(board_raw());
    if (!slave_trace_packet_is_open(&context)) {
        /* The ring was full: one more packet tells how many events were discarded. */
        while (hodo_ring_full(&ring))
            ;
        hodo_platform_ring_open(&platform);
    }
    hodo_platform_ring_close(&platform);
    shared->discarded = slave_trace_packet_events_discarded(&context);
    __sync_synchronize();
    shared->state = BOARD_STOPPED;
    for (;;)
        board_wait();
}
