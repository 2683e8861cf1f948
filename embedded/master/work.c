/* The master's part of the work: it divides a picture, sends its pieces to the slaves, and joins their answers.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <string.h>

#include "master.h"

/* Time between two pictures, in nanoseconds. */
#define EVERY 250000000u

static uint8_t picture[(WORK_HEIGHT + 2) * WORK_WIDTH];
static uint8_t joined[WORK_HEIGHT * WORK_WIDTH];
static unsigned long pictures, wrong;
static uint64_t next_begin, begun, longest, shortest = UINT64_MAX;
static unsigned outstanding;
static uint32_t count;

/* Draws the test picture: rings in a square. */
static void draw(void)
{
    uint32_t x, y;

    for (y = 0; y < WORK_HEIGHT + 2; y++) {
        for (x = 0; x < WORK_WIDTH; x++) {
            int32_t across = (int32_t)x - 128, down = (int32_t)y - 129;
            uint32_t distance = (uint32_t)(across * across + down * down);
            picture[y * WORK_WIDTH + x] = distance / 2048 % 2 ? 220 : (uint8_t)(x / 4 + y / 4);
        }
    }
}

static void queue_begin(struct work_queue *queue)
{
    queue->words.slots = WORK_SLOTS;
    queue->words.slot_bytes = WORK_SLOT;
}

void work_begin(struct slave *slave)
{
    queue_begin(&slave->shared->work.to_slave);
    queue_begin(&slave->shared->work.to_master);
    slave->sends.words = &slave->shared->work.to_slave.words;
    slave->answers.words = &slave->shared->work.to_master.words;
}

/* Returns the first row of a slave's piece. */
static uint32_t first_row(unsigned slave, unsigned slaves)
{
    return WORK_HEIGHT * slave / slaves;
}

static void send_pieces(struct slave *slaves, unsigned slave_count)
{
    unsigned index;

    draw();
    begun = clock_raw(0);
    trace_function(begun, 1, FUNCTION_SOBEL);
    trace_function(clock_raw(0), 1, FUNCTION_CUT);
    for (index = 0; index < slave_count; index++) {
        struct slave *slave = &slaves[index];
        uint32_t first = first_row(index, slave_count);
        struct work_message message = {((uint64_t)index << 32) | ((uint64_t)count << 1), 0, 0};
        if (hodo_ring_full(&slave->sends))
            continue;
        message.rows = first_row(index + 1, slave_count) - first;
        memcpy(slave->shared->work.piece, picture + first * WORK_WIDTH, (message.rows + 2) * WORK_WIDTH);
        memcpy(hodo_ring_reserve(&slave->sends), &message, sizeof message);
        trace_message(clock_raw(0), 1, slave, message.id);
        hodo_ring_commit(&slave->sends, sizeof message);
        slave->master.h1.raise(slave->master.h1.board);
        outstanding++;
    }
    trace_function(clock_raw(0), 0, FUNCTION_CUT);
    count++;
}

static void join(void)
{
    uint8_t expected[WORK_WIDTH];
    uint32_t row;
    uint64_t took;

    trace_function(clock_raw(0), 1, FUNCTION_JOIN);
    for (row = 0; row < WORK_HEIGHT; row++) {
        sobel_row(picture + row * WORK_WIDTH, expected);
        wrong += memcmp(expected, joined + row * WORK_WIDTH, WORK_WIDTH) != 0;
    }
    trace_function(clock_raw(0), 0, FUNCTION_JOIN);
    trace_function(clock_raw(0), 0, FUNCTION_SOBEL);
    took = clock_nanoseconds(clock_raw(0)) - clock_nanoseconds(begun);
    longest = took > longest ? took : longest;
    shortest = took < shortest ? took : shortest;
    pictures++;
}

int work_step(struct slave *slaves, unsigned slave_count)
{
    uint64_t now = clock_nanoseconds(clock_raw(0));
    unsigned index;

    if (!outstanding && now >= next_begin) {
        next_begin = now + EVERY;
        send_pieces(slaves, slave_count);
    }
    for (index = 0; index < slave_count && outstanding; index++) {
        struct slave *slave = &slaves[index];
        struct hodo_slot slot;
        struct work_message message;
        const uint8_t *packet = hodo_ring_peek(&slave->answers, &slot);
        uint32_t first = first_row(index, slave_count);
        if (!packet || slot.bytes != sizeof message)
            continue;
        memcpy(&message, packet, sizeof message);
        trace_message(clock_raw(0), 0, slave, message.id);
        memcpy(joined + first * WORK_WIDTH, slave->shared->work.edges,
               (first_row(index + 1, slave_count) - first) * WORK_WIDTH);
        hodo_ring_release(&slave->answers);
        if (--outstanding == 0)
            join();
    }
    return outstanding != 0;
}

void work_end(const struct settings *settings)
{
    char path[LONGEST_PATH + 16];
    FILE *file;

    if (pictures == 0)
        return;
    snprintf(path, sizeof path, "%s/sobel.pgm", settings->out);
    file = fopen(path, "wb");
    if (!file)
        fail("can't write", path);
    fprintf(file, "P5 %u %u 255\n", WORK_WIDTH, WORK_HEIGHT);
    fwrite(joined, sizeof joined, 1, file);
    if (fclose(file))
        fail("can't write", path);
    printf("pictures %lu rows wrong %lu shortest_us %lu longest_us %lu\n", pictures, wrong,
           (unsigned long)(shortest / 1000), (unsigned long)(longest / 1000));
}
