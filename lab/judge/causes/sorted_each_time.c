// case: a list that is sorted after each insertion
// finds: qsort|insert
// Sorts all numbers whenever one is added.
#include <stdio.h>
#include <stdlib.h>

static int numbers[400], count;

static int compare(const void *one, const void *other) { return *(const int *)one - *(const int *)other; }

__attribute__((noinline)) static void insert(int number) {
    numbers[count++] = number;
    qsort(numbers, count, sizeof *numbers, compare);
}

int main(void) {
    for (int number = 0; number < 400; number++) insert(number * 7919 % 4001);
    printf("%d\n", numbers[200]);
    return 0;
}
