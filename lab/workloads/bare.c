/* Five programs without a C library, chosen with -DPROGRAM=NAME: a library chooses its functions by the processor, and a
 * simulated processor has other features. Build with -nostdlib -static -ffreestanding -fno-stack-protector. Each exits with 0
 * if its result is the expected kind of value. */
#include <stddef.h>
#include <stdint.h>

static uint32_t state = 2463534242u;

/* The next number, the same in every run (xorshift32). */
static uint32_t next(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    return state ^= state << 5;
}

void *memset(void *to, int value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((volatile unsigned char *)to)[i] = (unsigned char)value;
    return to;
}

void *memcpy(void *to, const void *from, size_t size)
{
    for (size_t i = 0; i < size; i++)
        ((volatile unsigned char *)to)[i] = ((const unsigned char *)from)[i];
    return to;
}

/* Branches that no predictor knows. */
static int values[4096];

__attribute__((noinline)) static void quicksort(int low, int high)
{
    while (low < high) {
        int pivot = values[(low + high) / 2], i = low, j = high;
        while (i <= j) {
            while (values[i] < pivot)
                i++;
            while (values[j] > pivot)
                j--;
            if (i <= j) {
                int value = values[i];
                values[i++] = values[j];
                values[j--] = value;
            }
        }
        quicksort(low, j);
        low = i;
    }
}

static int sort(void)
{
    for (int i = 0; i < 4096; i++)
        values[i] = (int)(next() % 100000);
    quicksort(0, 4095);
    for (int i = 1; i < 4096; i++)
        if (values[i - 1] > values[i])
            return 1;
    return 0;
}

/* Loops of changing lengths. */
static int sieve(void)
{
    static unsigned char composite[20000];
    int primes = 0;
    for (int i = 2; i < 20000; i++) {
        if (composite[i])
            continue;
        primes++;
        for (int j = i + i; j < 20000; j += i)
            composite[j] = 1;
    }
    return primes == 2262 ? 0 : 1;
}

/* Recursion, and branches that repeat in long patterns. */
__attribute__((noinline)) static int queens(int size, int row, unsigned columns, unsigned left, unsigned right)
{
    int found = 0;
    if (row == size)
        return 1;
    for (int column = 0; column < size; column++) {
        unsigned bit = 1u << column;
        if ((columns | left | right) & bit)
            continue;
        found += queens(size, row + 1, columns | bit, (left | bit) << 1, (right | bit) >> 1);
    }
    return found;
}

static int board(void)
{
    return queens(7, 0, 0, 0, 0) == 40 ? 0 : 1;
}

/* An interpreter: indirect jumps. */
static int interpret(void)
{
    static unsigned char code[512];
    long stack[64], steps = 0;
    unsigned top = 0;
    for (int i = 0; i < 512; i++)
        code[i] = (unsigned char)(next() >> 7) % 7;
    stack[top++] = 1;
    for (unsigned at = 0; steps < 60000; at = (at + 1) % 512, steps++) {
        if (top < 2 || top > 60) {
            stack[0] = (long)steps, stack[1] = (long)next();
            top = 2;
        }
        switch (code[at]) {
        case 0: stack[top] = steps; top++; break;
        case 1: top--; stack[top - 1] += stack[top]; break;
        case 2: stack[top] = stack[top - 1]; top++; break;
        case 3: top--; stack[top - 1] ^= stack[top]; break;
        case 4: stack[top - 1] = -stack[top - 1]; break;
        case 5: at = (at + (unsigned)(stack[top - 1] & 3)) % 512; break;
        default: stack[top - 1] *= 31; break;
        }
    }
    return stack[0] == 42 ? 1 : 0;
}

/* More code than a small cache holds, called through pointers. */
#define COMPUTE(n)                                                                                                         \
    __attribute__((noinline, aligned(64))) static long compute##n(long value)                                              \
    {                                                                                                                      \
        for (int i = 0; i < (n & 3) + 1; i++)                                                                              \
            value = (value * (2 * n + 3)) ^ (value >> (n % 13 + 1)) ^ (value << (n % 7 + 1));                              \
        if (value & (1 << n % 8))                                                                                          \
            value += n * 7919;                                                                                             \
        return value % 1000003 + n;                                                                                        \
    }
#define EIGHT(n) COMPUTE(n##0) COMPUTE(n##1) COMPUTE(n##2) COMPUTE(n##3) COMPUTE(n##4) COMPUTE(n##5) COMPUTE(n##6) COMPUTE(n##7)
#define NAMES(n) compute##n##0, compute##n##1, compute##n##2, compute##n##3, compute##n##4, compute##n##5, compute##n##6, compute##n##7
EIGHT(1) EIGHT(2) EIGHT(3) EIGHT(4) EIGHT(5) EIGHT(6) EIGHT(7)
static long (*const functions[])(long) = { NAMES(1), NAMES(2), NAMES(3), NAMES(4), NAMES(5), NAMES(6), NAMES(7) };

static int large(void)
{
    long value = 1;
    for (int i = 0; i < 6000; i++)
        value = functions[(unsigned)(next() >> 3) % (sizeof functions / sizeof *functions)](value);
    return value == 0 ? 1 : 0;
}

__attribute__((noreturn)) void begin(void)
{
    long number = 60, status;
    /* All five are in each program, so that the compiler does not warn about the others. */
    int (*volatile programs[])(void) = { sort, sieve, board, interpret, large };
    (void)programs;
    status = PROGRAM();
    __asm__ volatile("syscall" : : "a"(number), "D"(status));
    __builtin_unreachable();
}

__asm__(".globl _start\n_start: xor %ebp, %ebp\n    and $-16, %rsp\n    call begin\n");
