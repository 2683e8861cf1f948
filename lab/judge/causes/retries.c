// case: calls that are tried again
// finds: try_once|fetch
// One fetch in 50 needs 41 tries instead of one.
#include <stdio.h>

static volatile unsigned sum;

__attribute__((noinline)) static int try_once(unsigned number, int attempt) {
    for (int turn = 0; turn < 60; turn++) sum += turn;
    return number % 50 != 49 || attempt == 40;
}

__attribute__((noinline)) static void fetch(unsigned number) {
    for (int attempt = 0; !try_once(number, attempt); attempt++) {}
}

int main(void) {
    for (unsigned number = 0; number < 5000; number++) fetch(number);
    printf("%u\n", sum);
    return 0;
}
