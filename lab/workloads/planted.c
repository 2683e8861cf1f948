/* A service of which everything is known: `serve` runs 4 instructions, but for planted executions that run exactly
 * so many more for one of three causes:
 *
 *   grow    a callee of 4002 instructions, and 4 to get there and back
 *   flush   a callee that calls another, 2004 together, and 3
 *   spin    804 of its own code
 *
 * Arguments: how often it is called, and the distance between planted executions. */
#include <stdlib.h>

unsigned long served;

void serve(int cause);

__asm__(".text\n"
        ".globl grow, copy, flush, serve\n"
        ".type grow, @function\n"
        "grow:\n"
        "    mov $2000, %ecx\n"
        "1:  dec %ecx\n"
        "    jnz 1b\n"
        "    ret\n"
        ".size grow, . - grow\n"
        ".type copy, @function\n"
        "copy:\n"
        "    mov $1000, %ecx\n"
        "1:  dec %ecx\n"
        "    jnz 1b\n"
        "    ret\n"
        ".size copy, . - copy\n"
        ".type flush, @function\n"
        "flush:\n"
        "    call copy\n"
        "    ret\n"
        ".size flush, . - flush\n"
        ".type serve, @function\n"
        "serve:\n"
        "    incq served(%rip)\n"
        "    test %edi, %edi\n"
        "    jne 1f\n"
        "    ret\n"
        "1:  cmp $2, %edi\n"
        "    je 2f\n"
        "    ja 3f\n"
        "    call grow\n"
        "    ret\n"
        "2:  call flush\n"
        "    ret\n"
        "3:  mov $400, %ecx\n"
        "4:  dec %ecx\n"
        "    jnz 4b\n"
        "    ret\n"
        ".size serve, . - serve\n");

int main(int count, char **arguments)
{
    long calls = count > 1 ? atol(arguments[1]) : 20000;
    long distance = count > 2 ? atol(arguments[2]) : 1000;
    for (long call = 0; call < calls; call++)
        serve(call % distance == distance / 2 ? 1 + (int)(call / distance % 3) : 0);
    return served != (unsigned long)calls;
}
