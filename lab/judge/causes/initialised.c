// case: a table that the first call makes
// healthy:
// The first call of `value` fills a table; 2,000 others use it.
#include <math.h>
#include <stdio.h>

static double table[20000];

__attribute__((noinline)) static void fill(void) {
    for (int index = 0; index < 20000; index++) table[index] = index * 0.5 + index % 3;
}

__attribute__((noinline)) static double value(int number) {
    if (table[1] == 0) fill();
    double sum = 0;
    for (int index = 0; index < 300; index++) sum += table[(number + index) % 20000];
    return sum;
}

int main(void) {
    double sum = 0;
    for (int number = 0; number < 2000; number++) sum += value(number);
    printf("%f\n", sum);
    return 0;
}
