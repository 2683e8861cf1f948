// case: the same work in each of many calls
// healthy:
#include <stdio.h>

static volatile unsigned long sum;

__attribute__((noinline)) static void step(unsigned number) {
    for (unsigned turn = 0; turn < 100; turn++) sum += number ^ turn;
}

int main(void) {
    for (unsigned number = 0; number < 20000; number++) step(number);
    printf("%lu\n", sum);
    return 0;
}
