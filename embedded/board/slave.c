/* The program of a slave: it answers the master, and traces messages, tasks, functions and ticks.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "../hodo/platform.h"
#include "board.h"
#include "kernel.h"
#include "oscillator.h"
#include "slave_trace.h"

#include <string.h>

/* Number of polls for the next request of a burst: longer than the master takes to send it, too short to be noticed. */
#define PATIENCE 60000u

static struct slave_trace_default_ctx context;
static struct hodo_ring ring;
static struct hodo_platform_ring platform;
static struct hodo_slave slave;
static struct board_oscillator oscillator;
static uint64_t started, shown, truth;
static uint32_t number_of_slave, urgent_ms, is_urgent;

/* Simulated time for a row of a picture, in nanoseconds. */
#define ROW 1000000u
/* Period and running time of the urgent task, in ticks. */
#define URGENT_EVERY 6u
#define URGENT_TICKS 4u

/* Sets the clock reading and the true time of the next event. */
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

void slave_switched(uint32_t from, uint32_t to)
{
    TRACE(board_raw(), task_switch, from, to);
}

void slave_ticked(void)
{
    static uint32_t ticks;

    TRACE(board_raw(), tick, ticks++);
    if (urgent_ms && truth - started >= (uint64_t)urgent_ms * 1000000u && ticks % URGENT_EVERY == 0 && !is_urgent) {
        is_urgent = 1;
        TRACE(board_raw(), task_wake, TASK_URGENT);
    }
}

/* Traces the entry of a function; called in tasks, with interrupts unmasked. */
static void entered(uint32_t function)
{
    board_mask();
    TRACE(board_raw(), func_entry, function);
    board_unmask();
}

static void left(uint32_t function)
{
    board_mask();
    TRACE(board_raw(), func_exit, function);
    board_unmask();
}

static void urgent(void)
{
    entered(FUNCTION_URGENT);
    kernel_spend((uint64_t)URGENT_TICKS * board_shared()->tick_us * 1000u - ROW / 2);
    left(FUNCTION_URGENT);
}

void slave_preempted(void)
{
    if (is_urgent && kernel_task() != TASK_URGENT) {
        kernel_run(TASK_URGENT, urgent);
        is_urgent = 0;
    }
}

/* Computes the edges of the piece that a message names, and answers the message. */
static void sobel(void)
{
    struct work_shared *work = &board_shared()->work;
    struct hodo_ring received, sent;
    struct hodo_slot slot;
    struct work_message message;
    const uint8_t *packet;
    uint32_t row;

    memset(&received, 0, sizeof received);
    memset(&sent, 0, sizeof sent);
    received.words = &work->to_slave.words;
    sent.words = &work->to_master.words;
    packet = hodo_ring_peek(&received, &slot);
    if (!packet)
        return;
    memcpy(&message, packet, sizeof message);
    hodo_ring_release(&received);
    board_mask();
    TRACE(board_raw(), msg_recv, message.id);
    board_unmask();
    entered(FUNCTION_SOBEL);
    for (row = 0; row < message.rows && row < WORK_HEIGHT; row++) {
        entered(FUNCTION_ROW);
        sobel_row(work->piece + row * WORK_WIDTH, work->edges + row * WORK_WIDTH);
        kernel_spend(ROW);
        left(FUNCTION_ROW);
    }
    left(FUNCTION_SOBEL);
    message.id |= 1u;
    if (hodo_ring_full(&sent))
        return;
    memcpy(hodo_ring_reserve(&sent), &message, sizeof message);
    board_mask();
    TRACE(board_raw(), msg_send, message.id);
    hodo_ring_commit(&sent, sizeof message);
    board_unmask();
}

static void begin(struct board_shared *shared)
{
    struct slave_trace_platform_callbacks callbacks;
    uint32_t epoch = shared->epoch + 1;

    oscillator = shared->oscillator;
    number_of_slave = shared->slave;
    urgent_ms = shared->urgent_ms;
    started = board_truth(board_raw());
    shared->started = started;
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
        if (shared->work.to_slave.words.produced != shared->work.to_slave.words.consumed) {
            board_mask();
            kernel_run(TASK_SOBEL, sobel);
            board_unmask();
        } else if (shared->poll) {
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
        /* The ring was full: one more packet contains the number of discarded events. */
        while (hodo_ring_full(&ring))
            ;
        hodo_platform_ring_open(&platform);
    }
    hodo_platform_ring_close(&platform);
    shared->discarded = slave_trace_packet_events_discarded(&context);
    __sync_synchronize();
    shared->state = BOARD_STOPPED;
    board_end();
    return 0;
}
