// record: kernel
// case: a connection for each request
// finds: Connections are made|connect
// Asks a server in the same process, over a new connection each time.
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUESTS = 4000 };
static int server;

static void *serve(void *unused) {
    char byte;
    for (int request = 0; request < REQUESTS; request++) {
        int client = accept(server, 0, 0);
        if (read(client, &byte, 1) == 1 && write(client, &byte, 1) == 1) close(client);
    }
    return unused;
}

int main(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    server = socket(AF_INET, SOCK_STREAM, 0);
    bind(server, (struct sockaddr *)&address, sizeof address);
    listen(server, 64);
    getsockname(server, (struct sockaddr *)&address, &length);
    pthread_t thread;
    pthread_create(&thread, 0, serve, 0);
    int answers = 0;
    for (int request = 0; request < REQUESTS; request++) {
        char byte = 'x';
        int client = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(client, (struct sockaddr *)&address, sizeof address)) return 1;
        if (write(client, &byte, 1) == 1) answers += read(client, &byte, 1);
        close(client);
    }
    pthread_join(thread, 0);
    printf("%d\n", answers);
    return 0;
}
