// Calls a function that ends in a jump to another one, `answer`, of whose four executions two take long.
#include <stdio.h>

static volatile long sum;

__attribute__((noinline, noclone)) static void answer(long turns) {
    for (long turn = 0; turn < turns; turn++) sum += turn;
}

__attribute__((noinline, noclone)) static void ask(long turns) {
    sum += turns;
    answer(turns);
}

int main(void) {
    ask(10);
    ask(300000);
    ask(20);
    ask(400000);
    printf("%ld\n", sum);
    return 0;
}
