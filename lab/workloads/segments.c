/* TCP segments of a network namespace, where the kernel passes them to a device and where it gets them from one.
 *
 *   segments watch DEVICE MILLISECONDS   a line a segment: nanoseconds of CLOCK_REALTIME, `sent` or `received`, addresses,
 *                                        ports, sequence number, acknowledgement, flags
 *   segments serve PORT                  answers each byte of one connection
 *   segments ask ADDRESS PORT COUNT      sends a byte and waits for the answer, every 5 ms
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int fail(const char *what)
{
    perror(what);
    return 2;
}

static uint32_t big(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void show(const struct timespec *time, int sent, const unsigned char *ip, ssize_t length)
{
    ssize_t header = (ip[0] & 15) * 4;
    const unsigned char *tcp = ip + header;

    if (length < header + 20 || ip[0] >> 4 != 4 || ip[9] != 6)
        return;
    printf("%lld %s %u %u %u %u %u %u %u\n", time->tv_sec * 1000000000LL + time->tv_nsec, sent ? "sent" : "received",
           big(ip + 12), big(ip + 16), tcp[0] << 8 | tcp[1], tcp[2] << 8 | tcp[3], big(tcp + 4), big(tcp + 8),
           tcp[12] << 8 | tcp[13]);
}

static int watch(const char *device, long milliseconds)
{
    struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
    struct timeval patience = {0, 10000};
    struct timespec now, end;
    int fd = socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_ALL)), on = 1, room = 8 << 20;

    address.sll_ifindex = (int)if_nametoindex(device);
    if (fd < 0 || bind(fd, (void *)&address, sizeof address))
        return fail("packet socket");
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += milliseconds / 1000;
    end.tv_nsec += milliseconds % 1000 * 1000000;
    end.tv_sec += end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    do {
        unsigned char bytes[2048], control[256];
        struct sockaddr_ll from;
        struct iovec part = {bytes, sizeof bytes};
        struct msghdr message = {&from, sizeof from, &part, 1, control, sizeof control, 0};
        ssize_t length = recvmsg(fd, &message, 0);
        struct cmsghdr *header = length > 0 ? CMSG_FIRSTHDR(&message) : NULL;

        for (; header; header = CMSG_NXTHDR(&message, header)) {
            struct timespec time;
            if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SO_TIMESTAMPNS)
                continue;
            memcpy(&time, CMSG_DATA(header), sizeof time);
            show(&time, from.sll_pkttype == PACKET_OUTGOING, bytes, length);
        }
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec));
    return 0;
}

static int serve(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1, fd;
    char byte;

    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 1))
        return fail("listen");
    fd = accept(listener, NULL, NULL);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (recv(fd, &byte, 1, 0) == 1)
        if (send(fd, &byte, 1, 0) != 1)
            return fail("send");
    return 0;
}

static int ask(const char *host, int port, int count)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    char byte = 0;

    if (inet_pton(AF_INET, host, &address.sin_addr) != 1 || connect(fd, (void *)&address, sizeof address))
        return fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    while (count--) {
        if (send(fd, &byte, 1, 0) != 1 || recv(fd, &byte, 1, 0) != 1)
            return fail("recv");
        usleep(5000);
    }
    return 0;
}

int main(int count, char **arguments)
{
    if (count == 4 && !strcmp(arguments[1], "watch"))
        return watch(arguments[2], atol(arguments[3]));
    if (count == 3 && !strcmp(arguments[1], "serve"))
        return serve(atoi(arguments[2]));
    if (count == 5 && !strcmp(arguments[1], "ask"))
        return ask(arguments[2], atoi(arguments[3]), atoi(arguments[4]));
    return 1;
}
