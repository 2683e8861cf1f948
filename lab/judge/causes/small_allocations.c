// case: memory that is allocated for each small thing
// finds: malloc,free|times
// Each word is allocated on its own, used once and freed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static char *make_word(int number) {
    char *word = malloc(32), *copy = malloc(32), *third = malloc(64);
    word[0] = (char)('a' + number % 26);
    word[1] = 0;
    copy[0] = word[0];
    free(third);
    free(copy);
    return word;
}

int main(void) {
    long sum = 0;
    for (int number = 0; number < 30000; number++) {
        char *word = make_word(number);
        sum += word[0];
        free(word);
    }
    printf("%ld\n", sum);
    return 0;
}
