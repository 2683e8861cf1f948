/* Seven system calls, each N times, on a file in memory: docs/reproduction/kernel.md. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void check(int ok, const char *what) {
    if (!ok) {
        perror(what);
        exit(1);
    }
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 400;
    static char page[4096];
    struct stat status;
    for (int round = 0; round < rounds; round++) {
        int file = open("/dev/shm/seven-calls", O_RDWR | O_CREAT, 0644);
        check(file >= 0, "open");
        check(write(file, page, sizeof page) == sizeof page, "write");
        check(lseek(file, 0, SEEK_SET) == 0, "lseek");
        check(read(file, page, sizeof page) == sizeof page, "read");
        check(fstat(file, &status) == 0, "fstat");
        void *mapped = mmap(NULL, sizeof page, PROT_READ, MAP_SHARED, file, 0);
        check(mapped != MAP_FAILED, "mmap");
        check(munmap(mapped, sizeof page) == 0, "munmap");
        check(close(file) == 0, "close");
    }
    return 0;
}
