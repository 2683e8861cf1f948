/* A small run-time compiler: it makes functions, tells of them as V8 and Java do, and makes others at the
 * same address, one of which begins with the very bytes of the one before.
 *
 * cc -O1 -o jitted jitted.c && ./jitted map FOLDER     writes FOLDER/perf-PID.map
 *                              ./jitted dump FOLDER    writes FOLDER/jit-PID.dump
 *
 * What runs: `double` 3 times (2 instructions each), then at its address `sum` 5 times (3 instructions each,
 * which begin as `double` does), then beside it `quick` 7 times (2 each); each after a call.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef long function(long);

/* lea (%rdi,%rdi),%rax; ret */
static const uint8_t code_double[] = {0x48, 0x8d, 0x04, 0x3f, 0xc3};
/* lea (%rdi,%rdi),%rax; add %rdi,%rax; ret */
static const uint8_t code_sum[] = {0x48, 0x8d, 0x04, 0x3f, 0x48, 0x01, 0xf8, 0xc3};
/* mov %rdi,%rax; ret; nop, which never runs */
static const uint8_t code_quick[] = {0x48, 0x89, 0xf8, 0xc3, 0x90};

static FILE *list;
static int dumps;

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void put(const void *bytes, size_t size)
{
    fwrite(bytes, 1, size, list);
}

/* The header of a jitdump, and the mapping by which a tracer learns of it. */
static void begin_dump(void)
{
    uint32_t words[] = {0x4a695444, 1, 40, 62, 0, getpid()};
    uint64_t longs[] = {now(), 0};
    put(words, sizeof words);
    put(longs, sizeof longs);
    fflush(list);
    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(list), 0);
}

static function *make(uint8_t *place, const char *name, const uint8_t *code, size_t size)
{
    static uint64_t number;
    memcpy(place, code, size);
    if (!dumps) {
        fprintf(list, "%lx %zx %s\n", (unsigned long)place, size, name);
        fflush(list);
        return (function *)place;
    }
    uint32_t head[] = {0, 16 + 40 + strlen(name) + 1 + size};
    uint64_t time = now();
    uint32_t who[] = {getpid(), gettid()};
    uint64_t what[] = {(uintptr_t)place, (uintptr_t)place, size, number++};
    put(head, sizeof head);
    put(&time, sizeof time);
    put(who, sizeof who);
    put(what, sizeof what);
    put(name, strlen(name) + 1);
    put(code, size);
    fflush(list);
    return (function *)place;
}

int main(int argc, char **argv)
{
    char path[4096];
    if (argc < 3)
        return 2;
    dumps = !strcmp(argv[1], "dump");
    snprintf(path, sizeof path, dumps ? "%s/jit-%d.dump" : "%s/perf-%d.map", argv[2], getpid());
    list = fopen(path, "w+");
    uint8_t *code = mmap(NULL, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!list || code == MAP_FAILED) {
        perror(path);
        return 1;
    }
    if (dumps)
        begin_dump();
    long sum = 0;
    function *run = make(code, "double", code_double, sizeof code_double);
    for (int round = 0; round < 3; round++)
        sum += run(round);
    run = make(code, "sum", code_sum, sizeof code_sum);
    for (int round = 0; round < 5; round++)
        sum += run(round);
    run = make(code + 64, "quick", code_quick, sizeof code_quick);
    for (int round = 0; round < 7; round++)
        sum += run(round);
    printf("sum %ld\n", sum);
    return 0;
}
