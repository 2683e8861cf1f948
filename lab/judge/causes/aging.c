// A list that gets longer at a steady pace, and is read now often, now rarely: each reading costs more the later it comes.
// case: a list that gets longer with time
// finds: summarise costs more the later it runs

#include <stdio.h>
#include <unistd.h>

static unsigned long values[100000];
static int length;

__attribute__((noinline)) static void receive(int step) {
    usleep(200);
    for (int count = 0; count < 10; count++)
        values[length++] = step * 31 + count;
}

__attribute__((noinline)) static unsigned long summarise(void) {
    unsigned long sum = 0;
    for (int index = 0; index < length; index++)
        sum ^= values[index];
    return sum;
}

int main(void) {
    unsigned long sum = 0;
    for (int step = 1; step <= 2000; step++) {
        receive(step);
        // Ten times as often at first.
        if (step % (step < 600 ? 3 : 30) == 0)
            sum ^= summarise();
    }
    printf("%lu\n", sum);
    return 0;
}
