// Calls step() so often: traced_step CALLS. With TRACED each call writes an event to LTTng.
#include <stdint.h>
#include <stdlib.h>
#ifdef TRACED
#include <lttng/tracef.h>
#endif

__attribute__((noinline)) static uint64_t step(uint64_t state)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
#ifdef TRACED
    lttng_ust_tracef("state %lu", state);
#endif
    return state;
}

int main(int count, char **arguments)
{
    uint64_t state = 1;
    long calls = count > 1 ? atol(arguments[1]) : 1000;
    for (long call = 0; call < calls; call++)
        state = step(state);
    return state == 0;
}
