/* Four threads share a triangle of work: each takes the same number of rows, but later rows are longer.
 * The program is as slow as its last thread. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

enum { THREADS = 4, ROWS = 2000 };

static uint64_t sums[THREADS];

/* Row n has n cells. */
__attribute__((noinline)) static uint64_t row(int n)
{
    uint64_t sum = 0;
    for (int cell = 0; cell < n; cell++)
        sum = (sum ^ (uint64_t)cell) * 0x100000001b3u;
    return sum;
}

static void *worker(void *argument)
{
    int index = (int)(intptr_t)argument;
    uint64_t sum = 0;
    for (int n = index * ROWS / THREADS; n < (index + 1) * ROWS / THREADS; n++)
        sum += row(n);
    sums[index] = sum;
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    uint64_t sum = 0;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i) != 0)
            return 1;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += sums[i];
    }
    printf("%d rows, checksum %016llx\n", ROWS, (unsigned long long)sum);
    return 0;
}
