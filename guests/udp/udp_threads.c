/* A server thread that echoes, clients that ask; a receive timeout; epoll; packet information; two sockets of one port.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

static int server_port;

static void *echo(void *arg)
{
    int fd = *(int *)arg;
    char buffer[256];
    for (int left = 40; left > 0; left--) {
        struct sockaddr_storage from;
        socklen_t length = sizeof from;
        ssize_t n = recvfrom(fd, buffer, sizeof buffer, 0, (struct sockaddr *)&from, &length);
        CHECK(n > 0);
        CHECK(sendto(fd, buffer, (size_t)n, 0, (struct sockaddr *)&from, length) == n);
    }
    return NULL;
}

static void *ask(void *arg)
{
    struct sockaddr_storage to;
    char out[32], in[32];
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(connect(fd, (struct sockaddr *)&to, loopback(AF_INET, server_port, &to)) == 0);
    for (int i = 0; i < 10; i++) {
        int n = snprintf(out, sizeof out, "%ld.%d", (long)(intptr_t)arg, i);
        CHECK(send(fd, out, (size_t)n, 0) == n);
        CHECK(recv(fd, in, sizeof in, 0) == n && memcmp(in, out, (size_t)n) == 0);
        note("%.*s", n, in);
    }
    close(fd);
    return NULL;
}

int main(void)
{
    struct sockaddr_storage address;
    pthread_t clients[4];
    int server = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
    CHECK(bind(server, (struct sockaddr *)&address, loopback(AF_INET, 0, &address)) == 0);
    server_port = local_port(server);
    pthread_t thread = spawn(echo, &server);
    for (int i = 0; i < 4; i++)
        clients[i] = spawn(ask, (void *)(intptr_t)i);
    for (int i = 0; i < 4; i++)
        join(clients[i]);
    join(thread);
    say("40 answers");

    struct timeval soon = {.tv_usec = 20000};
    char buffer[64], control[256];
    CHECK(setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon) == 0);
    CHECK_ERRNO(recv(server, buffer, sizeof buffer, 0), EAGAIN);

    CHECK(setsockopt(server, IPPROTO_IP, IP_PKTINFO, &on, sizeof on) == 0);
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET}, got;
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, server, &event) == 0);
    int client = socket(AF_INET, SOCK_DGRAM, 0);
    socklen_t length = loopback(AF_INET, server_port, &address);
    CHECK(sendto(client, "info", 4, 0, (struct sockaddr *)&address, length) == 4);
    CHECK(epoll_wait(epoll, &got, 1, -1) == 1 && got.events == EPOLLIN);
    CHECK(epoll_wait(epoll, &got, 1, 0) == 0);
    struct iovec part = {buffer, sizeof buffer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    CHECK(recvmsg(server, &message, 0) == 4);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    CHECK(head && head->cmsg_level == IPPROTO_IP && head->cmsg_type == IP_PKTINFO);
    struct in_pktinfo info;
    memcpy(&info, CMSG_DATA(head), sizeof info);
    CHECK(info.ipi_addr.s_addr == htonl(INADDR_LOOPBACK) && info.ipi_ifindex == 1);
    CHECK(CMSG_NXTHDR(&message, head) == NULL);
    message.msg_controllen = 10;
    CHECK(sendto(client, "info", 4, 0, (struct sockaddr *)&address, length) == 4);
    CHECK(recvmsg(server, &message, 0) == 4 && (message.msg_flags & MSG_CTRUNC) && message.msg_controllen == 0);
    say("timeout, epoll, packet information");

    /* Datagrams beyond a receiver's room are lost, and the sender does not wait. */
    static char block[8000];
    int sent = 0, received = 0;
    for (; sent < 200; sent++)
        CHECK(sendto(client, block, sizeof block, 0, (struct sockaddr *)&address, length) == sizeof block);
    while (recv(server, block, sizeof block, MSG_DONTWAIT) == sizeof block)
        received++;
    CHECK(errno == EAGAIN && received > 5 && received < 200);
    note("%d of %d datagrams kept", received, sent);
    say("overflow is dropped");
    return 0;
}
