/* Threads write to a page while others run code on it, and the page is given advice and moved. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef int (*function)(int);

enum { WRITERS = 4, TURNS = 2000 };
static unsigned char *page;

/* A counter of the page, apart from its code. */
static int *counter(int number) { return (int *)(page + 1024) + number; }

static void *count(void *number) {
    for (int i = 0; i < TURNS; i++) {
        __atomic_fetch_add(counter((long)number), 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(counter(WRITERS), ((function)page)(i) - i, __ATOMIC_RELAXED);
    }
    return 0;
}

int main(void) {
    page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    /* lea eax, [rdi + 1]; ret */
    unsigned char add[] = {0x8d, 0x47, 1, 0xc3};
    memcpy(page, add, sizeof add);
    pthread_t threads[WRITERS];
    for (long i = 0; i < WRITERS; i++)
        pthread_create(threads + i, 0, count, (void *)i);
    int sum = 0;
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], 0);
    for (int i = 0; i <= WRITERS; i++)
        sum += *counter(i);
    for (int i = 0; i < 10; i++) {
        sum += ((function)page)(0);
        if (madvise(page, 4096, MADV_WILLNEED) == 0)
            *counter(0) = i;
        sum += ((function)page)(0);
        page = mremap(page, 4096, 8192 - 4096 * (i % 2), MREMAP_MAYMOVE);
        if (page == MAP_FAILED)
            return 2;
        *counter(0) = i;
    }
    printf("%d\n", sum);
    return sum == 2 * WRITERS * TURNS + 20 ? 0 : 1;
}
