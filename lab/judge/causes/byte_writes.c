// case: a text written byte by byte
// finds: system calls of write|put
// Each of some thousand lines is written with one system call for each of its bytes.
#include <stdio.h>
#include <unistd.h>

static int out;

__attribute__((noinline)) void put(const char *text) {
    for (const char *at = text; *at; at++)
        if (write(out, at, 1) != 1) return;
}

int main(void) {
    char line[80];
    out = fileno(tmpfile());
    for (int number = 0; number < 3000; number++) {
        snprintf(line, sizeof line, "line %d of %d\n", number, 3000);
        put(line);
    }
    return 0;
}
