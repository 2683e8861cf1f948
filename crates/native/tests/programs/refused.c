/* What a recorded program must not do: each attempt fails, and the program goes on. */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
    void *theirs = (void *)0x200000000000;
    if (munmap(theirs, 4096) == 0 || mprotect(theirs, 4096, PROT_NONE) == 0)
        return 1;
    if (mmap(theirs, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED)
        return 2;
    if (syscall(SYS_arch_prctl, ARCH_SET_GS, 0x1000) == 0)
        return 3;
    if (prctl(PR_SET_SECCOMP, 2, 0, 0, 0) == 0)
        return 4;
    uint64_t gs = 1;
    if (syscall(SYS_arch_prctl, ARCH_GET_GS, &gs) || gs)
        return 5;
    closefrom(3);
    if (!fork()) {
        ((void (*)(void))0x200000001000)();
        _exit(0);
    }
    int status;
    if (wait(&status) < 0 || !WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV)
        return 6;
    puts("goes on");
    return 0;
}
