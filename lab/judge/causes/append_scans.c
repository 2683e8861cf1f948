// case: growth of each append
// finds: strlen|append_line
// Appends lines to a text, and looks for its end from its begin each time.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *text;

__attribute__((noinline)) static void append_line(const char *line) {
    strcpy(text + strlen(text), line);
}

int main(void) {
    text = calloc(1, 400000);
    for (int number = 0; number < 4000; number++) append_line("a line of this text");
    printf("%zu\n", strlen(text));
    return 0;
}
