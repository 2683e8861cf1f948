/* A server without a network: it answers many requests quickly, and between them as many slowly as its argument says. A
 * slow one takes a path that no quick one does. */
#include <stdio.h>
#include <stdlib.h>

enum { QUICK = 2000, ROUNDS = 200, SLOW_ROUNDS = 2000000 };

static volatile unsigned sink;

__attribute__((noinline)) static void spin(int rounds)
{
    for (int i = 0; i < rounds; i++)
        sink = sink * 1664525u + 1013904223u;
}

__attribute__((noinline)) static void rebuild(void)
{
    spin(SLOW_ROUNDS);
}

__attribute__((noinline)) static void serve(int is_slow)
{
    spin(ROUNDS);
    if (is_slow)
        rebuild();
}

int main(int count, char **arguments)
{
    int slow = count > 1 ? atoi(arguments[1]) : 0;
    for (int i = 0; i <= slow; i++) {
        for (int request = 0; request < QUICK; request++)
            serve(0);
        if (i < slow)
            serve(1);
    }
    printf("%u\n", sink);
    return 0;
}
