// case: a regular expression that is compiled for each line
// finds: regcomp|is_number
// Each line compiles the same regular expression.
#include <regex.h>
#include <stdio.h>

__attribute__((noinline)) static int is_number(const char *line) {
    regex_t expression;
    regcomp(&expression, "^[0-9]+([.][0-9]+)?$", REG_EXTENDED | REG_NOSUB);
    int matches = regexec(&expression, line, 0, 0, 0) == 0;
    regfree(&expression);
    return matches;
}

int main(void) {
    int count = 0;
    for (int line = 0; line < 300; line++) count += is_number(line % 2 ? "31.4" : "pi");
    printf("%d\n", count);
    return 0;
}
