// record: kernel
// case: memory that is mapped for each buffer
// finds: takes memory from the system|munmap
#include <string.h>
#include <sys/mman.h>

int main(void) {
    long sum = 0;
    for (int number = 0; number < 20000; number++) {
        char *buffer = mmap(0, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(buffer, number, 64);
        sum += buffer[63];
        munmap(buffer, 1 << 18);
    }
    return sum == 1;
}
