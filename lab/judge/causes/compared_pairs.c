// Batches of different sizes, in which each item is compared with all others: twice the items cost four times as much.
// case: batches whose items are compared with each other
// finds: deduplicate costs more for each iteration|power 1.9,power 2.0

#include <stdlib.h>

static unsigned long random_state = 7;

static unsigned long next(unsigned long bound) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (random_state >> 33) % bound;
}

__attribute__((noinline)) static int deduplicate(const unsigned *items, int count) {
    int same = 0;
    for (int one = 0; one < count; one++)
        for (int other = 0; other < one; other++)
            same += items[one] == items[other];
    return same;
}

int main(void) {
    static unsigned items[200];
    int same = 0;
    for (int batch = 0; batch < 300; batch++) {
        int count = 5 + next(190);
        for (int index = 0; index < count; index++)
            items[index] = next(1000);
        same += deduplicate(items, count);
    }
    return same == 0;
}
