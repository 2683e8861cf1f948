/* Two kinds of executions: of CALLS calls of `answer`, every EVERYth takes a path of 4,000 instructions in `rebuild`.
 *
 * Arguments: CALLS and EVERY. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) void rebuild(void)
{
    for (long left = 2000; left > 0; left--)
        __asm__ volatile("");
}

__attribute__((noinline)) void answer(long call, long every)
{
    if (call % every == every / 2)
        rebuild();
    __asm__ volatile("");
}

int main(int count, char **arguments)
{
    if (count != 3)
        return 1;
    long calls = atol(arguments[1]), every = atol(arguments[2]);
    for (long call = 0; call < calls; call++)
        answer(call, every);
    puts("done");
    return 0;
}
