#include <stdio.h>

/* Two labels of assembly without a type or a size; the second ends where `visible` begins. */
__asm__(".globl label\n.p2align 4\nlabel: nop\nnop\nnop\nnop\nnop\nnop\nnop\nret\nnext: ret\n.globl next\n");

__attribute__((noinline)) static int hidden(int value) { return value * 3 + 1; }

/* A label inside of a function is no function. */
__attribute__((noinline)) int visible(int value) {
    __asm__ volatile(".globl inside\ninside: nop");
    return hidden(value) + 1;
}

int __other_name_of_visible(int value) __attribute__((alias("visible")));

static int chosen_one(int value) { return value + 7; }
static int (*resolve(void))(int) { return chosen_one; }
int chosen(int value) __attribute__((ifunc("resolve")));

int main(int argc, char **argv) {
    puts(argv[0]);
    return visible(argc) + chosen(argc);
}
