/* What tracepoints cost: the workloads of Bertauld and Dagenais (doi:10.1186/s13639-016-0067-1), SHA-256 with four
 * densities of them, the sum of a series, and Quicksort, each without and with barectf. Counts the guest's own instructions; prints through the debugger's interface (semihosting).
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <stdint.h>

#include "slave_trace.h"

static struct slave_trace_default_ctx context;
static uint8_t packet[1 << 14];
static uint32_t events, is_traced;

static uint64_t instructions(void)
{
    uint64_t count;

    __asm__ volatile("csrr %0, minstret" : "=r"(count));
    return count;
}

static uint64_t clock_value(void *data)
{
    (void)data;
    return instructions();
}

static int is_full(void *data)
{
    (void)data;
    return 0;
}

static void open_packet(void *data)
{
    (void)data;
    slave_trace_default_open_packet(&context, 0);
}

static void close_packet(void *data)
{
    (void)data;
    slave_trace_default_close_packet(&context);
}

/* A tracepoint with a 32-bit integer. */
static void point(uint32_t value)
{
    if (is_traced) {
        slave_trace_default_trace_tick(&context, 0, value);
        events++;
    }
}

/* The debugger's call 4: write text. */
static void print(const char *text)
{
    register uintptr_t operation __asm__("a0") = 4;
    register uintptr_t argument __asm__("a1") = (uintptr_t)text;

    __asm__ volatile(".balign 16\n.option push\n.option norvc\n"
                     "slli zero, zero, 0x1f\nebreak\nsrai zero, zero, 7\n.option pop"
                     : "+r"(operation)
                     : "r"(argument)
                     : "memory");
}

static void print_number(uint64_t number)
{
    char digits[24];
    unsigned at = sizeof digits - 1;

    digits[at] = 0;
    do
        digits[--at] = (char)('0' + number % 10);
    while (number /= 10);
    print(digits + at);
}

/* FIPS 180-4. */
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turned(uint32_t word, unsigned bits)
{
    return word >> bits | word << (32 - bits);
}

static void sha256_block(uint32_t *state, const uint8_t *block)
{
    uint32_t w[64], s[8];
    unsigned i;

    for (i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 | (uint32_t)block[4 * i + 2] << 8 |
               block[4 * i + 3];
    for (; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] + (turned(w[i - 15], 7) ^ turned(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (turned(w[i - 2], 17) ^ turned(w[i - 2], 19) ^ w[i - 2] >> 10);
    for (i = 0; i < 8; i++)
        s[i] = state[i];
    for (i = 0; i < 64; i++) {
        uint32_t one = s[7] + (turned(s[4], 6) ^ turned(s[4], 11) ^ turned(s[4], 25)) +
                       ((s[4] & s[5]) ^ (~s[4] & s[6])) + constants[i] + w[i];
        uint32_t two = (turned(s[0], 2) ^ turned(s[0], 13) ^ turned(s[0], 22)) +
                       ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        s[7] = s[6], s[6] = s[5], s[5] = s[4], s[4] = s[3] + one;
        s[3] = s[2], s[2] = s[1], s[1] = s[0], s[0] = one + two;
    }
    for (i = 0; i < 8; i++)
        state[i] += s[i];
}

#define LETTERS 7

/* The first word of the hash of seven letters, which are one block with their padding. */
static uint32_t sha256(const char *letters)
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t block[64] = {0};
    unsigned i;

    for (i = 0; i < LETTERS; i++)
        block[i] = (uint8_t)letters[i];
    block[LETTERS] = 0x80;
    block[63] = 8 * LETTERS;
    sha256_block(state, block);
    return state[0];
}

/* Makes all 5,040 permutations of "barectf" (B. R. Heap, 1963) and hashes each `every`th, with a tracepoint for each hash. */
static uint32_t permutations(unsigned every)
{
    char letters[LETTERS] = {'b', 'a', 'r', 'e', 'c', 't', 'f'};
    unsigned swaps[LETTERS] = {0}, at = 1, number = 0;
    uint32_t result = 0;

    for (;;) {
        if (++number % every == 0) {
            result = sha256(letters);
            point(result);
        }
        while (at < LETTERS && swaps[at] == at)
            swaps[at++] = 0;
        if (at == LETTERS)
            return result;
        unsigned from = at % 2 ? swaps[at] : 0;
        char kept = letters[from];
        letters[from] = letters[at];
        letters[at] = kept;
        swaps[at]++;
        at = 1;
    }
}

static uint32_t sha256_a(void) { return permutations(1); }
static uint32_t sha256_b(void) { return permutations(5); }
static uint32_t sha256_c(void) { return permutations(10); }
static uint32_t sha256_d(void) { return permutations(100); }

/* The sum of 1/k² in fixed point, 10,000 terms, 50 times; a tracepoint for each time. */
static uint32_t pisum(void)
{
    uint64_t sum = 0;
    unsigned round, k;

    for (round = 0; round < 50; round++) {
        for (sum = 0, k = 1; k <= 10000; k++)
            sum += (UINT64_C(1) << 48) / ((uint64_t)k * k);
        point((uint32_t)(sum >> 16));
    }
    return (uint32_t)(sum >> 16);
}

static uint32_t numbers[10000];

/* A tracepoint for each call. */
static void sort(int from, int to)
{
    uint32_t middle = numbers[(from + to) / 2];
    int i = from, j = to;

    point(middle);
    while (i <= j) {
        while (numbers[i] < middle)
            i++;
        while (numbers[j] > middle)
            j--;
        if (i <= j) {
            uint32_t kept = numbers[i];
            numbers[i++] = numbers[j];
            numbers[j--] = kept;
        }
    }
    if (from < j)
        sort(from, j);
    if (i < to)
        sort(i, to);
}

static uint32_t quicksort(void)
{
    uint32_t random = 1;
    unsigned i;

    for (i = 0; i < sizeof numbers / sizeof *numbers; i++)
        numbers[i] = random = random * 1664525 + 1013904223;
    sort(0, sizeof numbers / sizeof *numbers - 1);
    return numbers[0];
}

static uint64_t measure(uint32_t (*bench)(void), int traced)
{
    volatile uint32_t result;
    uint64_t begin;

    is_traced = (uint32_t)traced;
    events = 0;
    begin = instructions();
    result = bench();
    (void)result;
    return instructions() - begin;
}

int main(void)
{
    static const struct {
        const char *name;
        uint32_t (*bench)(void);
    } benches[] = {{"SHA-256 A", sha256_a}, {"SHA-256 B", sha256_b}, {"SHA-256 C", sha256_c},
                   {"SHA-256 D", sha256_d}, {"Pisum", pisum},        {"Quicksort", quicksort}};
    struct slave_trace_platform_callbacks callbacks = {clock_value, is_full, open_packet, close_packet};
    unsigned i;

    slave_trace_init(&context, packet, sizeof packet, callbacks, 0);
    open_packet(0);
    for (i = 0; i < sizeof benches / sizeof *benches; i++) {
        uint64_t without = measure(benches[i].bench, 0), with = measure(benches[i].bench, 1);
        print("| ");
        print(benches[i].name);
        print(" | ");
        print_number(without);
        print(" | ");
        print_number(with);
        print(" | ");
        print_number(events);
        print(" | ");
        print_number((with - without) / events);
        print(" |\n");
    }
    return 0;
}
