/* Threads that call functions and the system without end, for a number of rounds each. Some rounds are slow. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static long rounds;

__attribute__((noinline)) static long fibonacci(long n) {
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

__attribute__((noinline)) long serve(long number) { return fibonacci(number % 97 == 0 ? 14 : 6) + number; }

static void *run(void *argument) {
    long sum = (long)argument;
    for (long number = 1; number <= rounds; number++) {
        sum += serve(number);
        if (number % 50 == 0)
            sum += getppid() != 0;
    }
    return (void *)sum;
}

int main(int count, char **arguments) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    rounds = count > 1 ? atol(arguments[1]) : 1000;
    for (long i = 0; i < THREADS; i++)
        if (pthread_create(threads + i, 0, run, (void *)i))
            return 1;
    long sum = 0;
    for (int i = 0; i < THREADS; i++) {
        void *result;
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    printf("%ld\n", sum);
    return 0;
}
