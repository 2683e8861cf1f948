// case: a cache that is emptied again and again
// finds: fill_cache|every
// Every 500th request empties a cache, and the next one fills it.
#include <stdio.h>

static int cache[4096], is_full;

__attribute__((noinline)) static void fill_cache(void) {
    for (int index = 0; index < 4096; index++) cache[index] = index * 31 % 977;
    is_full = 1;
}

__attribute__((noinline)) static int request(int number) {
    if (!is_full) fill_cache();
    int sum = 0;
    for (int index = 0; index < 50; index++) sum += cache[(number * 13 + index) % 4096];
    if (number % 500 == 499) is_full = 0;
    return sum;
}

int main(void) {
    long sum = 0;
    for (int number = 0; number < 10000; number++) sum += request(number);
    printf("%ld\n", sum);
    return 0;
}
