// case: a sweep after every thousandth allocation
// finds: sweep|every
// Every 1,000th allocation looks at all cells.
#include <stdio.h>

static unsigned char marks[60000];
static unsigned allocated;
static volatile unsigned live_cells;

__attribute__((noinline)) static unsigned sweep(void) {
    unsigned live = 0;
    for (unsigned cell = 0; cell < sizeof marks; cell++) live += marks[cell];
    return live;
}

__attribute__((noinline)) static unsigned allocate(void) {
    if (++allocated % 1000 == 0) live_cells = sweep();
    unsigned cell = allocated * 2654435761u % sizeof marks;
    marks[cell] ^= 1;
    return cell;
}

int main(void) {
    unsigned sum = 0;
    for (int number = 0; number < 20000; number++) sum += allocate();
    printf("%u\n", sum);
    return 0;
}
