/* Work for a board: the master cuts a picture, slaves find its edges (Sobel), piece by piece, by messages.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef BOARD_WORK_H
#define BOARD_WORK_H

#include "../hodo/ring.h"

#define WORK_WIDTH 256u
#define WORK_HEIGHT 256u
#define WORK_SLOTS 8u
#define WORK_SLOT 64u

/* A message, both ways. */
struct work_message {
    /* Unique: the slave in the upper half, a count, and bit 0 for an answer. */
    uint64_t id;
    /* Rows of the piece, without the one above and the one below that it needs to see. */
    uint32_t rows, unused;
};

/* A queue of messages, in shared memory. */
struct work_queue {
    struct hodo_ring_words words;
    uint8_t slots[WORK_SLOTS * WORK_SLOT];
};

struct work_shared {
    struct work_queue to_slave, to_master;
    uint8_t piece[(WORK_HEIGHT + 2) * WORK_WIDTH];
    uint8_t edges[WORK_HEIGHT * WORK_WIDTH];
};

/* What tracepoints call functions and tasks; see `slave.yaml` and `master.yaml`. */
enum { FUNCTION_SOBEL, FUNCTION_ROW, FUNCTION_URGENT, FUNCTION_CUT, FUNCTION_JOIN };
enum { TASK_IDLE, TASK_SOBEL, TASK_URGENT };

/* The edges of a row of the picture. Rows lie one behind the other; `above` is the one before. */
void sobel_row(const uint8_t *above, uint8_t *edges);

#endif
