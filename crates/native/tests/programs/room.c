// Uses up its address space, under a limit that it sets itself, and goes on.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEP = 1 << 20, MOST = 1024 };
static void *pieces[MOST];

static int fill(void) {
    int count = 0;
    while (count < MOST) {
        void *piece = mmap(0, STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (piece == MAP_FAILED) break;
        pieces[count++] = piece;
    }
    return count;
}

static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(void) {
    struct rlimit limit = {256 << 20, RLIM_INFINITY}, now;
    if (setrlimit(RLIMIT_AS, &limit) || getrlimit(RLIMIT_AS, &now)) return 1;
    printf("limit %lu\n", (unsigned long)now.rlim_cur);
    int count = fill();
    printf("%s\n", count > 200 && count < 256 ? "about the limit" : "other");
    // Code that did not run yet.
    int numbers[500];
    for (int n = 0; n < 500; n++) numbers[n] = n * 7919 % 503;
    qsort(numbers, 500, sizeof *numbers, compare);
    printf("%d %d\n", numbers[0], numbers[499]);
    while (count) munmap(pieces[--count], STEP);
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) execl("/bin/echo", "echo", "another program", (char *)0), _exit(1);
    if (child < 0) puts("no fork");
    fflush(stdout);
    waitpid(child, &status, 0);
    printf("%d\n", status);
    return 0;
}
