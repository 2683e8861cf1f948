/* A process of which another one, as a debugger, replaces code before and after it first runs.
 *
 *     gcc -O1 -o debugged lab/workloads/debugged.c
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

__attribute__((noinline, aligned(64))) int replaced(int number)
{
    volatile int sum = number;
    for (int i = 0; i < 5; i++)
        sum += i;
    return sum;
}

__attribute__((noinline, aligned(64))) int stopped(int number)
{
    volatile int product = number;
    for (int i = 1; i < 4; i++)
        product *= i;
    return product;
}

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static long peek(pid_t child, void *at)
{
    errno = 0;
    long word = ptrace(PTRACE_PEEKTEXT, child, at, NULL);
    if (errno)
        fail("peek");
    return word;
}

static void poke(pid_t child, void *at, long word)
{
    if (ptrace(PTRACE_POKETEXT, child, at, (void *)word))
        fail("poke");
}

int main(void)
{
    pid_t child = fork();
    if (child == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        raise(SIGSTOP);
        int sum = 0;
        for (int i = 0; i < 20; i++)
            sum += replaced(i) + stopped(i);
        return sum & 0x7f;
    }
    int status;
    if (waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
        fail("wait");
    /* mov $7, %eax; nop; nop; ret: it never runs as the file has it. */
    const uint8_t code[8] = {0xb8, 7, 0, 0, 0, 0x90, 0x90, 0xc3};
    long word;
    memcpy(&word, code, sizeof word);
    poke(child, (void *)replaced, word);
    long before = peek(child, (void *)stopped);
    long broken = (before & ~0xffL) | 0xcc;
    poke(child, (void *)stopped, broken);
    int stops = 0;
    for (;;) {
        if (ptrace(PTRACE_CONT, child, NULL, NULL))
            fail("continue");
        if (waitpid(child, &status, 0) != child)
            fail("wait");
        if (WIFEXITED(status))
            break;
        if (!WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP)
            fail("stop");
        stops++;
        struct user_regs_struct registers;
        if (ptrace(PTRACE_GETREGS, child, NULL, &registers))
            fail("registers");
        registers.rip--;
        ptrace(PTRACE_SETREGS, child, NULL, &registers);
        poke(child, (void *)stopped, before);
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL))
            fail("step");
        waitpid(child, &status, 0);
        poke(child, (void *)stopped, broken);
    }
    printf("%d stops, %d\n", stops, WEXITSTATUS(status));
    return 0;
}
