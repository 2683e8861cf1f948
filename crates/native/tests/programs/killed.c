/* Is killed in the middle of a loop, by itself. */
#include <signal.h>
#include <unistd.h>

static volatile long sum;

int main(void) {
    for (long i = 0; i < 3000000; i++)
        sum += i;
    kill(getpid(), SIGKILL);
    return 0;
}
