/* Functions with a uprobe: the kernel writes a breakpoint over the first instruction, in all processes.
 *
 *     gcc -O1 -o probed lab/workloads/probed.c
 *     probed        # as root, in a machine with tracefs in /sys/kernel/tracing
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define TRACING "/sys/kernel/tracing/"

__attribute__((noinline, aligned(64))) int probed(int number)
{
    volatile int sum = number;
    for (int i = 0; i < 5; i++)
        sum += i;
    return sum;
}

static void fail(const char *what)
{
    perror(what);
    exit(2);
}

static void put(const char *file, const char *text)
{
    int fd = open(file, O_WRONLY | O_APPEND);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        fail(file);
    close(fd);
}

/* The offset of a function in this program's file. */
static unsigned long offset_of(void *function)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (maps && fgets(line, sizeof line, maps)) {
        unsigned long begin, end, offset;
        if (sscanf(line, "%lx-%lx %*s %lx", &begin, &end, &offset) == 3 && begin <= (unsigned long)function &&
            (unsigned long)function < end) {
            fclose(maps);
            return (unsigned long)function - begin + offset;
        }
    }
    fail("maps");
    return 0;
}

/* A process for each: it has an address space that another one had before. */
static int children(void)
{
    int sum = 0;
    for (int i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(probed(i) + probed(i + 1));
        int status;
        if (waitpid(child, &status, 0) != child)
            fail("wait");
        sum += WEXITSTATUS(status);
    }
    return sum;
}

int main(void)
{
    char path[256], probe[512];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length < 0)
        fail("exe");
    path[length] = 0;
    int sum = children();
    snprintf(probe, sizeof probe, "p:hodo/probed %s:0x%lx\n", path, offset_of((void *)probed));
    put(TRACING "uprobe_events", probe);
    put(TRACING "events/hodo/probed/enable", "1");
    sum += children() + probed(3);
    put(TRACING "events/hodo/probed/enable", "0");
    sum += children() + probed(4);
    put(TRACING "uprobe_events", "-:hodo/probed\n");
    printf("probed: %d\n", sum);
    return 0;
}
