/* A program of 32-bit code without libraries. In 64-bit code, the opcodes of `inc` and `dec` are prefixes.
 *
 *     gcc -m32 -O1 -nostdlib -static -fno-pie -no-pie -fno-stack-protector -o bits32 lab/workloads/bits32.c
 */
static unsigned values[64];

static int system_call(int number, int a, const void *b, int c)
{
    int result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}

__attribute__((noinline)) static unsigned step(unsigned value, unsigned index)
{
    values[index & 63]++;
    __asm__ volatile("inc %0\n\tinc %0\n\tdec %0" : "+a"(value));
    return value * 1103515245u + 12345u + values[value & 63];
}

__attribute__((noinline)) static unsigned run(unsigned (*function)(unsigned, unsigned), unsigned count)
{
    unsigned value = 1;
    for (unsigned i = 0; i < count; i++)
        value = i % 7 ? function(value, i) : value - i;
    return value;
}

void _start(void)
{
    unsigned value = run(step, 5000);
    system_call(4, 1, "32 bits\n", 8);
    system_call(1, value == 0, 0, 0);
    for (;;)
        ;
}
