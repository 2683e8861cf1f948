// record: kernel
// case: a file that is synced after each record
// finds: waits for the disk|fdatasync
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    char name[] = "synced-records";
    int file = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0600);
    for (int record = 0; record < 500; record++) {
        if (write(file, "a record of some bytes\n", 23) != 23) return 1;
        fdatasync(file);
    }
    close(file);
    return unlink(name);
}
