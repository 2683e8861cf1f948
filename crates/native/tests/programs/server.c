// A server on the loopback: a thread for each connection, which answers each line of digits with its sum, its square and the
// number of the answer. Prints its port.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void *serve(void *argument) {
    FILE *in = fdopen((int)(long)argument, "r+");
    setvbuf(in, 0, _IOLBF, 0);
    char line[256];
    long answers = 0;
    while (fgets(line, sizeof line, in)) {
        long value = atol(line), sum = 0;
        for (char *digit = line; *digit; digit++)
            if (*digit >= '0' && *digit <= '9') sum += *digit - '0';
        fseek(in, 0, SEEK_CUR);
        char answer[256];
        int length = snprintf(answer, sizeof answer, "%ld %.1f %ld\n", sum, (double)value * value, ++answers);
        if (write(fileno(in), answer, length) != length) break;
    }
    fclose(in);
    return 0;
}

int main(void) {
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    bind(listener, (struct sockaddr *)&address, sizeof address);
    listen(listener, 64);
    getsockname(listener, (struct sockaddr *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (;;) {
        int connection = accept(listener, 0, 0);
        if (connection < 0) {
            perror("accept");
            return 1;
        }
        pthread_t thread;
        pthread_create(&thread, 0, serve, (void *)(long)connection);
        pthread_detach(thread);
    }
}
