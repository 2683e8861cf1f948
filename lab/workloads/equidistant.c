/* Branches at equal distances: equidistant PASSES. Each pass runs DISTANCE instructions, of which the last is a branch;
 * with CALLS two more are a call and a return. */
#include <stdlib.h>

#define TEXT(x) #x
#define NOPS(count) ".rept " TEXT(count) "\nnop\n.endr\n"

#ifdef CALLS
#define CALL "call 2f\n"
#define OTHERS(distance) NOPS(distance - 4)
#else
#define CALL ""
#define OTHERS(distance) NOPS(distance - 2)
#endif

__asm__(".globl run\n.type run, @function\nrun:\n1:\n" CALL OTHERS(DISTANCE) "dec %rdi\njnz 1b\n2: ret\n.size run, . - run\n");

void run(long passes);

int main(int count, char **arguments)
{
    long passes = count > 1 ? atol(arguments[1]) : 1000;
    if (passes > 0)
        run(passes);
    return 0;
}
