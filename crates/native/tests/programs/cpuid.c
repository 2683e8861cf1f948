// What CPUID tells, apart from transactional memory, and that it leaves the flags alone.
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef CPUID
// Translated code, which uses the first words of what `gs` leads to.
enum { TRANSLATED = 1, SHOWN = -1 };
#else
#define CPUID "cpuid"
enum { TRANSLATED = 0, SHOWN = ~(1 << 4 | 1 << 11) };
#endif

static uint64_t context[64];

static uint64_t ask(uint64_t flags, uint32_t leaf, uint32_t part, uint32_t out[4]) {
    __asm__ volatile("push %0\n popfq\n" CPUID "\n pushfq\n pop %0\n"
                     : "+r"(flags), "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3])
                     : "a"(leaf), "c"(part)
                     : "cc", "memory");
    return flags;
}

int main(void) {
    if (TRANSLATED && syscall(SYS_arch_prctl, ARCH_SET_GS, context)) return 1;
    static const uint32_t leaves[][2] = {{0, 0}, {7, 0}, {7, 1}, {0x80000002, 0}, {0x80000007, 7}};
    for (int n = 0; n < 5; n++) {
        uint32_t out[4];
        int kept = 1;
        for (int bits = 0; bits < 64; bits++) {
            // CF, PF, AF, ZF, SF, OF
            uint64_t flags = 0x202 | (bits & 1) | (bits & 2) << 1 | (bits & 4) << 2 | (bits & 8) << 3 |
                             (bits & 16) << 3 | (bits & 32) << 6;
            kept &= (ask(flags, leaves[n][0], leaves[n][1], out) & 0x8d5) == (flags & 0x8d5);
        }
        printf("%x %x %x %x flags %s\n", out[0], out[1] & SHOWN, out[2], out[3], kept ? "kept" : "lost");
    }
    return 0;
}
