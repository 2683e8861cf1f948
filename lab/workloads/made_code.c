/* Functions that are made at run time, on 64-bit Arm and RISC-V: each adds the numbers up to its own. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define FUNCTIONS 64
#define ROUNDS 200

#if defined(__aarch64__)
static const uint32_t code[] = {
    0xd2800001, /* mov x1, #N */
    0x8b010000, /* add x0, x0, x1 */
    0xf1000421, /* subs x1, x1, #1 */
    0x54ffffc1, /* b.ne .-8 */
    0xd65f03c0, /* ret */
};
#define NUMBER(n) ((uint32_t)(n) << 5)
#elif defined(__riscv)
static const uint32_t code[] = {
    0x00000593, /* li a1, N */
    0x00b50533, /* add a0, a0, a1 */
    0xfff58593, /* addi a1, a1, -1 */
    0xfe059ce3, /* bnez a1, .-8 */
    0x00008067, /* ret */
};
#define NUMBER(n) ((uint32_t)(n) << 20)
#else
#error "made for 64-bit Arm and RISC-V"
#endif

int main(void)
{
    size_t size = FUNCTIONS * sizeof code;
    char *page = mmap(NULL, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long sum = 0;

    if (page == MAP_FAILED)
        return 1;
    for (int n = 1; n <= FUNCTIONS; n++) {
        uint32_t own[sizeof code / sizeof *code];

        memcpy(own, code, sizeof code);
        own[0] |= NUMBER(n);
        memcpy(page + (n - 1) * sizeof code, own, sizeof code);
    }
    __builtin___clear_cache(page, page + size);
    for (int round = 0; round < ROUNDS; round++)
        for (int n = 0; n < FUNCTIONS; n++) {
            unsigned long (*function)(unsigned long);
            void *at = page + n * sizeof code;

            memcpy(&function, &at, sizeof function);
            sum = function(sum);
        }
    printf("%lu\n", sum);
    /* 64 * 65 * 66 / 6 in each round. */
    return sum != 45760ul * ROUNDS;
}
