// Writes code and runs it, again and again, in memory that it may always write, and in memory whose protection it changes.
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static int run(unsigned char *memory, int value) {
    unsigned char code[] = {0xb8, 0, 0, 0, 0, 0xc3};
    memcpy(code + 1, &value, 4);
    memcpy(memory, code, sizeof code);
    return ((int (*)(void))memory)();
}

int main(void) {
    unsigned char *always = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *sometimes = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("ready\n");
    fflush(stdout);
    int wrong = 0, value = 0;
    struct pollfd input = {0, POLLIN, 0};
    do {
        for (int n = 0; n < 100; n++) {
            value++;
            wrong += run(always + n % 3 * 4000, value) != value;
            // The same code several times: it is translated, and the page protected.
            for (int again = 0; again < 3; again++) wrong += ((int (*)(void))always)() < 0;
            mprotect(sometimes, 4096, PROT_READ | PROT_WRITE);
            unsigned char code[] = {0xb8, 0, 0, 0, 0, 0xc3};
            memcpy(code + 1, &value, 4);
            memcpy(sometimes, code, sizeof code);
            mprotect(sometimes, 4096, PROT_READ | PROT_EXEC);
            wrong += ((int (*)(void))sometimes)() != value;
        }
    } while (poll(&input, 1, 0) == 0);
    printf("%d wrong\n", wrong);
    return 0;
}
