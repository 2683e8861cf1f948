// record: kernel
// case: files that are looked for and not there
// finds: not there|openat
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    char name[64];
    int found = 0;
    for (int number = 0; number < 20000; number++) {
        snprintf(name, sizeof name, "/usr/share/no-such-folder/%d", number % 40);
        int file = open(name, O_RDONLY);
        if (file >= 0) found++, close(file);
    }
    printf("%d\n", found);
    return 0;
}
