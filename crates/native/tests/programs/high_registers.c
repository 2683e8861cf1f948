// Reads variables relative to RIP, with prefixes that name a high register where none is used: the processor ignores
// that. The comparisons run in hot paths of the C library's sort, far away from the variables.
#include <stdio.h>
#include <stdlib.h>

int weight = 3;

static int compare(const void *left, const void *right) {
    int factor = 0;
    // mov eax, [rip + weight], with REX.B
    __asm__(".byte 0x41, 0x8b, 0x05\n.long weight - . - 4" : "=a"(factor));
    return *(const int *)left * factor - *(const int *)right * factor;
}

int main(void) {
    int numbers[4000];
    long sum = 0;
    for (int round = 0; round < 60; round++) {
        for (int index = 0; index < 4000; index++) numbers[index] = (index * 7919 + round) % 4001;
        qsort(numbers, 4000, sizeof *numbers, compare);
        for (int index = 1; index < 4000; index++) {
            if (numbers[index - 1] > numbers[index]) return 1;
            sum += (long)numbers[index] * index;
        }
    }
    printf("%ld\n", sum);
    return 0;
}
