/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "work.h"

static int32_t size(int32_t value)
{
    return value < 0 ? -value : value;
}

void sobel_row(const uint8_t *above, uint8_t *edges)
{
    const uint8_t *row = above + WORK_WIDTH, *below = row + WORK_WIDTH;
    uint32_t x;

    edges[0] = edges[WORK_WIDTH - 1] = 0;
    for (x = 1; x + 1 < WORK_WIDTH; x++) {
        int32_t across = above[x + 1] + 2 * row[x + 1] + below[x + 1] - above[x - 1] - 2 * row[x - 1] - below[x - 1];
        int32_t down = below[x - 1] + 2 * below[x] + below[x + 1] - above[x - 1] - 2 * above[x] - above[x + 1];
        int32_t edge = size(across) + size(down);
        edges[x] = (uint8_t)(edge > 255 ? 255 : edge);
    }
}
