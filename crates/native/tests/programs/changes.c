/* Code that is made while the program runs, and changes itself. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef int (*function)(int);

int main(void) {
    unsigned char *code =
        mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int sum = 0;
    /* lea eax, [rdi + N]; ret: replaced again and again. */
    unsigned char add[] = {0x8d, 0x87, 0, 0, 0, 0, 0xc3};
    for (int i = 0; i < 50; i++) {
        memcpy(add + 2, &i, 4);
        memcpy(code, add, sizeof add);
        sum += ((function)code)(1);
        sum += ((function)code)(2);
    }
    /* mov byte [rip + 1], 7; mov eax, 1 (becomes 7); ret: changes its own next instruction. */
    unsigned char self[] = {0xc6, 0x05, 1, 0, 0, 0, 7, 0xb8, 1, 0, 0, 0, 0xc3};
    for (int i = 0; i < 5; i++) {
        memcpy(code + 100, self, sizeof self);
        sum += ((function)(code + 100))(0);
    }
    /* Through mprotect, as some compilers at run time do. */
    for (int i = 0; i < 20; i++) {
        mprotect(code, 8192, PROT_READ | PROT_WRITE);
        memcpy(add + 2, &i, 4);
        memcpy(code + 4096, add, sizeof add);
        mprotect(code, 8192, PROT_READ | PROT_EXEC);
        sum += ((function)(code + 4096))(3);
    }
    munmap(code, 8192);
    printf("%d\n", sum);
    return sum == 2 * (49 * 50 / 2) + 150 + 35 + 60 + 190 ? 0 : 1;
}
