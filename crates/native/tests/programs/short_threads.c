/* As many threads, one after another, as the argument says; each does a little. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static void *run(void *argument) {
    uint64_t x = (uint64_t)argument | 1;
    for (int i = 0; i < 20; i++)
        x ^= x << 13, x ^= x >> 7;
    return (void *)x;
}

int main(int count, char **arguments) {
    uint64_t sum = 0;
    for (long i = count > 1 ? atol(arguments[1]) : 1; i > 0; i--) {
        pthread_t thread;
        void *result;
        if (pthread_create(&thread, 0, run, (void *)i) || pthread_join(thread, &result))
            return 1;
        sum += (uint64_t)result;
    }
    printf("%lx\n", sum);
}
