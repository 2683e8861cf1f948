// case: texts that nobody reads
// finds: vsnprintf|debug
// Formats a message for each step, though messages are off.
#include <stdarg.h>
#include <stdio.h>

static int is_verbose;
static volatile unsigned long sum;

__attribute__((noinline)) static void debug(const char *format, ...) {
    char message[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (is_verbose) fputs(message, stderr);
}

__attribute__((noinline)) static void step(unsigned number) {
    for (int index = 0; index < 30; index++) sum += number ^ index;
    debug("step %u of %s: %f\n", number, "the calculation", number / 3.0);
}

int main(void) {
    for (unsigned number = 0; number < 5000; number++) step(number);
    printf("%lu\n", sum);
    return 0;
}
