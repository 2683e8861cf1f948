/* Takes the second processor offline, and starts it again. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

static int set(const char *value)
{
    int file = open("/sys/devices/system/cpu/cpu1/online", O_WRONLY);
    int done = file >= 0 && write(file, value, 1) == 1;
    close(file);
    usleep(10000);
    return done;
}

int main(void)
{
    int done = set("0") + set("1");
    printf("%d changes\n", done);
    return done != 2;
}
