/* A text that compresses and parses like prose, the same each time. */
#include <stdlib.h>

#define SIZE 60000

static char text[SIZE + 1];

static void make_text(void) {
    static const char *words[] = {"trace", "packet", "of", "the", "branch", "and", "a", "clock", "with", "thread",
                                  "which", "instruction", "ran", "before", "it", "returned", "to", "caller"};
    unsigned state = 12345;
    int length = 0;
    while (length < SIZE) {
        state = state * 1103515245u + 12345u;
        const char *word = words[(state >> 16) % (sizeof words / sizeof *words)];
        while (*word && length < SIZE) text[length++] = *word++;
        if (length < SIZE) text[length++] = (state >> 8) % 11 ? ' ' : '\n';
    }
    text[SIZE] = 0;
}
