/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "string.h"

void *memcpy(void *to, const void *from, size_t bytes)
{
    unsigned char *out = to;
    const unsigned char *in = from;

    while (bytes--)
        *out++ = *in++;
    return to;
}

void *memset(void *to, int value, size_t bytes)
{
    unsigned char *out = to;

    while (bytes--)
        *out++ = (unsigned char)value;
    return to;
}

size_t strlen(const char *text)
{
    const char *end = text;

    while (*end)
        end++;
    return (size_t)(end - text);
}
