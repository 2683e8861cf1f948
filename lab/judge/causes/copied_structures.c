// case: a large structure that is copied for each call
// build: -O0
// finds: copy|total
// Functions take and return a structure of 64 KB by value.
#include <stdio.h>

struct state { long values[8192]; };
static struct state all;

__attribute__((noinline)) static void copy(struct state *to, const struct state *from) {
    for (int index = 0; index < 8192; index++) to->values[index] = from->values[index];
}

__attribute__((noinline)) static long total(int index) {
    static struct state own;
    copy(&own, &all);
    return own.values[index] + own.values[index + 1];
}

int main(void) {
    long sum = 0;
    for (int index = 0; index < 300; index++) {
        all.values[index] = index;
        sum += total(index);
    }
    printf("%ld\n", sum);
    return 0;
}
