/* Two processes that pass a byte back and forth, of which everything is known: in some rounds one of them runs `busy`,
 * a loop of two instructions, and makes a latency long. By the first argument:
 *
 *   function   the parent runs it in `handle`
 *   read       the child runs it before it writes, and the parent waits in read()
 *   wakeup     the parent runs it after it woke the child, which is called `sleeper` and runs only when nothing else does
 *
 * Further arguments: the number of rounds, the distance between the planted ones, and the iterations of the loop. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long iterations;

__attribute__((noinline)) void busy(void)
{
    unsigned long left = iterations;
    __asm__ volatile("1: dec %0\n jnz 1b" : "+r"(left));
}

__attribute__((noinline)) void handle(int slow)
{
    if (slow)
        busy();
    __asm__ volatile("");
}

static void pass(int from, int to, int reads)
{
    char byte = 0;
    if ((reads ? read(from, &byte, 1) : write(to, &byte, 1)) != 1)
        _exit(1);
}

static void child(int from, int to, const char *mode, long rounds, long distance)
{
    if (!strcmp(mode, "wakeup")) {
        struct sched_param none = {0};
        prctl(PR_SET_NAME, "sleeper");
        if (sched_setscheduler(0, SCHED_IDLE, &none))
            _exit(1);
    }
    for (long round = 0; round < rounds; round++) {
        pass(from, to, 1);
        if (!strcmp(mode, "read") && round % distance == distance / 2)
            busy();
        pass(from, to, 0);
    }
    _exit(0);
}

int main(int count, char **arguments)
{
    if (count != 5)
        return 2;
    const char *mode = arguments[1];
    long rounds = atol(arguments[2]), distance = atol(arguments[3]);
    iterations = strtoul(arguments[4], 0, 10);
    int there[2], back[2], status = 0;
    if (pipe(there) || pipe(back))
        return 1;
    pid_t pid = fork();
    if (pid == 0)
        child(there[0], back[1], mode, rounds, distance);
    for (long round = 0; round < rounds; round++) {
        int planted = round % distance == distance / 2;
        handle(planted && !strcmp(mode, "function"));
        /* Until the child waits for the byte: whatever wakes up runs before it. */
        if (!strcmp(mode, "wakeup"))
            usleep(100);
        pass(back[0], there[1], 0);
        if (planted && !strcmp(mode, "wakeup"))
            busy();
        pass(back[0], there[1], 1);
    }
    waitpid(pid, &status, 0);
    return status != 0;
}
