/* Code that no file holds: functions written at run time, written again at the same address, and code that
 * changes itself. perf can't decode what it has no file for; the emulated processor keeps such code in the
 * recording.
 *
 * cc -O1 -o generated generated.c && ./generated [ROUNDS]
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef int function(int);

/* lea N(%rdi),%eax; ret */
static void write_adder(uint8_t *code, int8_t n)
{
    const uint8_t adder[] = {0x8d, 0x47, (uint8_t)n, 0xc3};
    memcpy(code, adder, sizeof adder);
}

/* xor %eax,%eax; loop: add %edi,%eax; dec %edi; jnz loop; ret */
static void write_summer(uint8_t *code)
{
    const uint8_t summer[] = {0x31, 0xc0, 0x01, 0xf8, 0xff, 0xcf, 0x75, 0xfa, 0xc3};
    memcpy(code, summer, sizeof summer);
}

/* Overwrites the operand of its own second instruction, then runs it:
 * movl $0x2a,1+next(%rip); next: mov $0,%eax; ret */
static void write_changer(uint8_t *code)
{
    const uint8_t changer[] = {0xc7, 0x05, 0x01, 0, 0, 0, 0x2a, 0, 0, 0, 0xb8, 0, 0, 0, 0, 0xc3};
    memcpy(code, changer, sizeof changer);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    uint8_t *code = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    long sum = 0;
    for (int round = 0; round < rounds; round++) {
        if (round % 2)
            write_adder(code, (int8_t)round);
        else
            write_summer(code);
        sum += ((function *)code)(round + 1);
        write_changer(code + 4096);
        sum += ((function *)(code + 4096))(0);
    }
    printf("sum %ld\n", sum);
    return 0;
}
