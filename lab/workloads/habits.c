/* Programs with one habit each, which the first argument names:
 *
 *   grows    every `append` scans what the ones before appended
 *   first    `lookup` builds a table in its first call
 *   retries  every 100th `request` sends 41 times instead of once
 *   deep     every 100th `sort_batch` recurses 280 deep instead of 3
 *   roles    three threads with different work
 *   beats    every 100th `handle` runs three times as long
 *   even     calls `step`, which always costs the same
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define KEPT __attribute__((noinline))

static inline __attribute__((always_inline)) void spin(long turns)
{
    for (; turns > 0; turns--)
        __asm__ volatile("");
}

static char text[8000];

KEPT void append(char letter)
{
    char *end = text;
    while (*end) {
        end++;
        __asm__ volatile("");
    }
    *end = letter;
}

static int table[3000], is_built;

KEPT void build(void)
{
    for (int i = 0; i < 3000; i++) {
        table[i] = i * i;
        __asm__ volatile("");
    }
    is_built = 1;
}

KEPT int lookup(int i)
{
    if (!is_built)
        build();
    return table[i];
}

KEPT void copy(void) { spin(20); }

KEPT void transmit(void)
{
    copy();
    spin(30);
}

KEPT void request(int number)
{
    for (int attempts = number % 100 == 7 ? 41 : 1; attempts > 0; attempts--)
        transmit();
    __asm__ volatile("");
}

KEPT void quick_sort(int depth)
{
    spin(50);
    if (depth > 1)
        quick_sort(depth - 1);
    __asm__ volatile("");
}

KEPT void sort_batch(int number)
{
    quick_sort(number % 100 == 63 ? 280 : 3);
    __asm__ volatile("");
}

KEPT void step(void) { spin(100); }

KEPT void handle(int number) { spin(number % 100 == 42 ? 600 : 100); }

KEPT void read_all(void) { spin(60000); }
KEPT void parse_all(void) { spin(400000); }
KEPT void write_all(void) { spin(50000); }

static void *reader(void *nothing) { read_all(); return nothing; }
static void *parser(void *nothing) { parse_all(); return nothing; }
static void *writer(void *nothing) { write_all(); return nothing; }

int main(int count, char **arguments)
{
    const char *habit = count > 1 ? arguments[1] : "";
    if (!strcmp(habit, "grows"))
        for (int i = 0; i < 600; i++)
            append('a');
    else if (!strcmp(habit, "first"))
        for (int i = 0; i < 150; i++)
            lookup(i);
    else if (!strcmp(habit, "retries"))
        for (int i = 0; i < 1000; i++)
            request(i);
    else if (!strcmp(habit, "deep"))
        for (int i = 0; i < 500; i++)
            sort_batch(i);
    else if (!strcmp(habit, "beats"))
        for (int i = 0; i < 2000; i++)
            handle(i);
    else if (!strcmp(habit, "even"))
        for (int i = 0; i < 3000; i++)
            step();
    else if (!strcmp(habit, "roles")) {
        void *(*starts[])(void *) = { reader, parser, writer };
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            pthread_create(&threads[i], 0, starts[i], 0);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], 0);
    } else
        return 1;
    puts("done");
    return 0;
}
