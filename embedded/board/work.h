/* Work for a board: the master divides a picture into pieces, and slaves find their edges (Sobel), by messages.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef BOARD_WORK_H
#define BOARD_WORK_H

#include "../hodo/ring.h"

#define WORK_WIDTH 256u
#define WORK_HEIGHT 256u
#define WORK_SLOTS 8u
#define WORK_SLOT 64u

/* A message, in both directions. */
struct work_message {
    /* Unique: the slave's number in the upper half, a counter above bit 0, and in bit 0 whether it is an answer. */
    uint64_t id;
    /* Rows of the piece, without the rows above and below it that the filter reads. */
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

/* Functions and tasks in tracepoints, as in `slave.yaml` and `master.yaml`. */
enum { FUNCTION_SOBEL, FUNCTION_ROW, FUNCTION_URGENT, FUNCTION_CUT, FUNCTION_JOIN };
enum { TASK_IDLE, TASK_SOBEL, TASK_URGENT };

/* Computes the edges of a row. Rows are contiguous in memory; `above` is the row before it. */
void sobel_row(const uint8_t *above, uint8_t *edges);

#endif
