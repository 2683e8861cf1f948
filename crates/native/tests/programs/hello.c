#include <stdio.h>
#include <string.h>

int main(int count, char **arguments) {
    char line[200] = "hello";
    for (int i = 1; i < count; i++) {
        strcat(line, " ");
        strcat(line, arguments[i]);
    }
    puts(line);
    return 0;
}
