/* Code that changes: each version is longer than the one before, up to seven times, and returns another number. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { VERSIONS = 2000, LENGTHS = 7, PLACES = 3, RUNS = 5 };

typedef int (*function)(void);

/* Writes instructions that do nothing, and `mov eax, number; ret`. */
static size_t assemble(unsigned char *code, int number)
{
    size_t length = 0;
    for (int i = 0; i <= number % LENGTHS; i++)
        code[length++] = 0x90;
    code[length++] = 0xb8;
    unsigned char value[4] = {number & 0xff, 0, 0, 0};
    memcpy(code + length, value, sizeof value);
    length += sizeof value;
    code[length++] = 0xc3;
    return length;
}

int main(void)
{
    int protection = PROT_READ | PROT_WRITE | PROT_EXEC;
    unsigned char *memory = mmap(0, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    long sum = 0;
    for (int number = 0; number < VERSIONS; number++) {
        unsigned char code[64], *place = memory + number % PLACES * 128;
        memcpy(place, code, assemble(code, number));
        for (int run = 0; run < RUNS; run++)
            sum += ((function)place)();
    }
    printf("%ld\n", sum);
    return 0;
}
