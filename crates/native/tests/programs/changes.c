/* Code that is made while the program runs, and changes itself. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
    /* Written by the kernel. */
    mprotect(code, 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
    for (int i = 0; i < 3; i++) {
        int ends[2];
        memcpy(add + 2, &i, 4);
        if (pipe(ends) || write(ends[1], add, sizeof add) != sizeof add)
            return 2;
        if (read(ends[0], code, sizeof add) != sizeof add)
            return 3;
        sum += ((function)code)(10);
        close(ends[0]);
        close(ends[1]);
    }
    munmap(code, 8192);
    printf("%d\n", sum);
    return sum == 2 * (49 * 50 / 2) + 150 + 35 + 60 + 190 + 33 ? 0 : 1;
}
