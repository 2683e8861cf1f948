// case: a length that is counted in each turn of a loop
// build: -O0
// finds: strlen|upper
// The condition of a loop over a text asks for its length.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static char text[3001];

__attribute__((noinline)) static void upper(char *letters) {
    for (size_t index = 0; index < strlen(letters); index++) letters[index] = toupper(letters[index]);
}

int main(void) {
    memset(text, 'x', 3000);
    for (int round = 0; round < 10; round++) upper(text);
    puts(text + 2990);
    return 0;
}
