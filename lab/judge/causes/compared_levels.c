// case: a setting that is read as text each time
// finds: strcmp,strcasecmp|is_on
// Each step asks a list of texts whether something is on.
#include <stdio.h>
#include <string.h>

static const char *names[] = {"alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa"};
static volatile int values[10];

__attribute__((noinline)) static int is_on(const char *name) {
    for (int index = 0; index < 10; index++)
        if (strcmp(names[index], name) == 0) return values[index];
    return 0;
}

int main(void) {
    long sum = 0;
    const char *volatile asked = "kappa";
    for (int step = 0; step < 30000; step++) sum += is_on(asked) + step % 3;
    printf("%ld\n", sum);
    return 0;
}
