// case: an array that is copied for each element
// finds: push|malloc,memcpy,memmove
// A list takes memory for one more element each time, and copies all others.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long *list;
static size_t length;

__attribute__((noinline)) static void push(long element) {
    long *longer = malloc((length + 1) * sizeof *longer);
    if (length) memcpy(longer, list, length * sizeof *longer);
    free(list);
    list = longer;
    list[length++] = element;
}

int main(void) {
    for (long element = 0; element < 6000; element++) push(element);
    printf("%ld\n", list[5999]);
    return 0;
}
