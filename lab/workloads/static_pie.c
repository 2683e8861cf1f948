/* A program without an interpreter that relocates itself: indirect calls through a table that holds
 * nothing but relocations, string instructions with a repeat prefix, and a child that is forked. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int add(int a, int b) { return a + b; }
static int subtract(int a, int b) { return a - b; }
static int multiply(int a, int b) { return a * b; }

static int (*const operations[])(int, int) = {add, subtract, multiply};

static int compare(const void *a, const void *b)
{
    int left = *(const int *)a, right = *(const int *)b;
    return (left > right) - (left < right);
}

int main(void)
{
    static int values[20000];
    static char from[4096], to[4096];
    unsigned value = 1;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        value = value * 1103515245u + 12345u;
        values[i] = operations[(value >> 16) % 3]((int)(value >> 20), (int)i);
    }
    qsort(values, sizeof values / sizeof *values, sizeof *values, compare);
    for (int round = 0; round < 100; round++) {
        void *destination = to;
        const void *source = from;
        size_t count = (size_t)round * 40;
        __asm__ volatile("rep movsb" : "+D"(destination), "+S"(source), "+c"(count) : : "memory");
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0)
        _exit(values[0] < values[19999] ? 7 : 8);
    int status = 0;
    waitpid(child, &status, 0);
    printf("child ended with %d\n", WEXITSTATUS(status));
    return WEXITSTATUS(status) == 7 ? 0 : 1;
}
