/* The recursive Fibonacci number of the first argument: nothing but calls, returns and branches. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static unsigned long fib(unsigned n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

int main(int count, char **arguments)
{
    unsigned n = count > 1 ? (unsigned)atoi(arguments[1]) : 30;
    printf("fib(%u) = %lu\n", n, fib(n));
    return 0;
}
