// case: one call of 99 is slow
// run: 99
// finds: refresh
// case: one call of 20 is slow
// run: 20
// finds: refresh
// case: half of the calls are slow
// run: 2
// finds: refresh
// Answers requests; every Nth finds its answer missing.
#include <stdio.h>
#include <stdlib.h>

static volatile unsigned table[256];

__attribute__((noinline)) static void refresh(void) {
    for (int round = 0; round < 20; round++)
        for (int index = 0; index < 256; index++) table[index] += round;
}

__attribute__((noinline)) static unsigned answer(unsigned request, unsigned every) {
    if (request % every == every - 1) refresh();
    unsigned sum = 0;
    for (int index = 0; index < 40; index++) sum += table[(request + index) % 256];
    return sum;
}

int main(int count, char **words) {
    unsigned every = count > 1 ? atoi(words[1]) : 99, sum = 0;
    for (unsigned request = 0; request < 4000; request++) sum += answer(request, every);
    printf("%u\n", sum);
    return 0;
}
