/* The functions of a C library that generated code and the compiler use.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#ifndef BOARD_STRING_H
#define BOARD_STRING_H

#include <stddef.h>

void *memcpy(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
size_t strlen(const char *text);

#endif
