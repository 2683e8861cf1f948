/* Tests the parts that enumerate.c does not visit: the slave's whole handler, platforms for barectf, oscillators.
 *
 * Prints a line for each failed check, and exits with code 1 after any.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <stdio.h>
#include <string.h>

#include "../board/oscillator.h"
#include "platform.h"
#include "sync.h"

static int failures;

#define CHECK(condition)                                                   \
    do {                                                                   \
        if (!(condition)) {                                                \
            printf("line %d: %s\n", __LINE__, #condition);                 \
            failures++;                                                    \
        }                                                                  \
    } while (0)

/* A master that sends its next request after each answer; it runs when the slave reads its clock. */
static struct hodo_sync_words words;
static uint32_t left;
static uint64_t now;
static struct hodo_exchange traced[16];
static uint32_t traced_count;

static uint64_t read_clock(void *board)
{
    (void)board;
    if (words.acknowledge == (words.request & ~1u) + 1 && left > 0) {
        left--;
        words.request = ((words.request & ~1u) + 2) | (left > 0);
    }
    return ++now;
}

static void trace(void *data, const struct hodo_exchange *exchange)
{
    (void)data;
    /* Nothing is traced before the whole burst is answered. */
    CHECK(words.acknowledge == (words.request & ~1u) + 1);
    traced[traced_count++] = *exchange;
}

static void handler(void)
{
    struct hodo_slave slave;
    uint32_t index;

    memset(&slave, 0, sizeof slave);
    slave.words = &words;
    slave.clock.read = read_clock;
    slave.trace = trace;
    slave.patience = 5;
    hodo_slave_begin(&slave);
    CHECK(hodo_slave_handle(&slave) == 0);
    words.request = 2;
    CHECK(hodo_slave_handle(&slave) == 1);
    CHECK(words.acknowledge == 3 && traced_count == 1);
    CHECK(traced[0].number == 2 && traced[0].received < traced[0].sent);
    /* The interrupt is repeated. */
    CHECK(hodo_slave_handle(&slave) == 0 && traced_count == 1);
    /* A further request is announced and does not come: the handler gives up. */
    words.request = 4 | 1;
    CHECK(hodo_slave_handle(&slave) == 1 && words.acknowledge == 5);
    /* A burst longer than the slave's memory: the handler traces and returns. */
    for (index = 0; index < HODO_BURST; index++) {
        words.request = (6 + 2 * index) | 1;
        while (hodo_slave_step(&slave) != HODO_DONE)
            ;
    }
    CHECK(slave.held == HODO_BURST);
    CHECK(hodo_slave_handle(&slave) == 0 && slave.held == 0 && traced_count == 2 + HODO_BURST);
    CHECK(traced[2].number == 6 && traced[1 + HODO_BURST].number == 4 + 2 * HODO_BURST);
}

static uint8_t sent[64];
static uint32_t sent_bytes, opened, closed, buffer_bytes;
static uint8_t *buffer;

static void put(void *board, uint8_t byte)
{
    (void)board;
    sent[sent_bytes++] = byte;
}

static void open_packet(void *context)
{
    (void)context;
    opened++;
}

static void close_packet(void *context)
{
    (void)context;
    closed++;
}

static void set_buffer(void *context, uint8_t *memory, uint32_t bytes)
{
    (void)context;
    buffer = memory;
    buffer_bytes = bytes;
}

static void platforms(void)
{
    static const uint8_t packet[4] = {1, 2, 3, 4};
    static struct {
        struct hodo_ring_words words;
        uint8_t slots[2][32];
    } memory = {.words = {.slots = 2, .slot_bytes = 32}};
    struct hodo_platform_uart uart;
    struct hodo_platform_ring platform;
    struct hodo_ring ring;
    struct hodo_slot slot;
    const uint8_t *read;

    memset(&uart, 0, sizeof uart);
    uart.tracer.open = open_packet;
    uart.tracer.close = close_packet;
    uart.put = put;
    uart.buffer = packet;
    uart.bytes = sizeof packet;
    CHECK(!hodo_platform_uart_full(&uart));
    hodo_platform_uart_open(&uart);
    hodo_platform_uart_close(&uart);
    CHECK(opened == 1 && closed == 1 && sent_bytes == sizeof packet && !memcmp(sent, packet, sizeof packet));

    memset(&ring, 0, sizeof ring);
    memset(&platform, 0, sizeof platform);
    ring.words = &memory.words;
    ring.epoch = 7;
    platform.tracer = uart.tracer;
    platform.tracer.set_buffer = set_buffer;
    platform.ring = &ring;
    for (opened = 0; !hodo_platform_ring_full(&platform); opened += 0) {
        hodo_platform_ring_open(&platform);
        CHECK(buffer_bytes == 24);
        memset(buffer, (int)opened, buffer_bytes);
        hodo_platform_ring_close(&platform);
    }
    CHECK(opened == 2);
    read = hodo_ring_peek(&ring, &slot);
    CHECK(read && slot.epoch == 7 && slot.bytes == 24 && read[0] == 1 && read[23] == 1);
    /* Invalid counters: the consumer continues at the producer's position. */
    memory.words.consumed = memory.words.produced - 3;
    CHECK(!hodo_ring_peek(&ring, &slot) && ring.broken == 1 && memory.words.consumed == memory.words.produced);
    /* A faulty slave's packet that is longer than its slot. */
    hodo_platform_ring_open(&platform);
    hodo_ring_commit(&ring, 25);
    CHECK(!hodo_ring_peek(&ring, &slot) && ring.broken == 2);
}

/* Compares ticks with the formula in floating point. */
static void oscillators(void)
{
    struct board_oscillator oscillator;
    uint64_t time, before = 0;

    memset(&oscillator, 0, sizeof oscillator);
    oscillator.offset = 1000;
    oscillator.drift = -(int64_t)(50e-6 * 4294967296.0);
    oscillator.wander_ppb = 5000;
    oscillator.wander_period_us = 20000000;
    oscillator.steps = 1;
    oscillator.step[0].at = 30000000000u;
    oscillator.step[0].ticks = 12345;
    for (time = 0; time < 60000000000u; time += 999983) {
        double phase = (double)(time % 20000000000u), half = 10e9;
        double side = phase < half ? 1 : -1, since = phase < half ? phase : phase - half;
        double wander = side * 5e-6 * since * (half - since) / half;
        double expected = 1000 + ((double)time * (1 - 50e-6) + wander) / 100 + (time >= 30000000000u ? 12345 : 0);
        uint64_t ticks = oscillator_ticks(&oscillator, time);
        double error = (double)ticks - expected;
        if (error > 0.5 || error < -1.5) {
            CHECK(!"ticks are those of the formula");
            return;
        }
        CHECK(ticks >= before);
        before = ticks;
    }
    CHECK(oscillator_scale(0xffffffffffffffffu, 0xffffffffu) == 0xfffffffeffffffffu);
}

int main(void)
{
    handler();
    platforms();
    oscillators();
    return failures ? 1 : 0;
}
