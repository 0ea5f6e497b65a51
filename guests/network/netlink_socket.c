/* Netlink sockets as sockets: types, port ids, groups, options, readiness, blocking receives, processes.
 *
 * expect: same
 */
#include "netlink.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/wait.h>

static int make(int type)
{
    int fd = socket(AF_NETLINK, type, NETLINK_ROUTE);
    CHECK(fd >= 0);
    return fd;
}

static uint32_t id_of(int fd, uint32_t *groups)
{
    struct sockaddr_nl own;
    socklen_t length = sizeof own;
    CHECK(getsockname(fd, (struct sockaddr *)&own, &length) == 0 && length == sizeof own && own.nl_family == AF_NETLINK);
    if (groups)
        *groups = own.nl_groups;
    return own.nl_pid;
}

/* A process's first socket has the process's number, unless another of that number (in another
   namespace of process numbers) has it: then a negative one. */
static int is_first_of_process(int fd)
{
    uint32_t id = id_of(fd, NULL);
    return id == (uint32_t)getpid() || (int32_t)id < 0;
}

static int number(int fd, int level, int name)
{
    int value = -1;
    socklen_t length = sizeof value;
    CHECK(getsockopt(fd, level, name, &value, &length) == 0);
    return value;
}

static void ask_link(int fd)
{
    struct question q;
    ask(&q, RTM_GETLINK, 0, sizeof q.body.link);
    q.body.link.ifi_index = 1;
    CHECK(send(fd, &q, q.head.nlmsg_len, 0) == (ssize_t)q.head.nlmsg_len);
}

static void *ask_later(void *arg)
{
    ask_link((int)(intptr_t)arg);
    return NULL;
}

int main(void)
{
    char buffer[16384];
    uint32_t groups;
    CHECK_ERRNO(socket(AF_NETLINK, SOCK_STREAM, NETLINK_ROUTE), ESOCKTNOSUPPORT);
    int pair[2];
    CHECK_ERRNO(socketpair(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE, pair), EOPNOTSUPP);
    int fd = make(SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC), second = make(SOCK_DGRAM);
    CHECK(number(fd, SOL_SOCKET, SO_TYPE) == SOCK_RAW && number(second, SOL_SOCKET, SO_TYPE) == SOCK_DGRAM);
    CHECK(number(fd, SOL_SOCKET, SO_DOMAIN) == AF_NETLINK && number(fd, SOL_SOCKET, SO_PROTOCOL) == NETLINK_ROUTE);
    CHECK(id_of(fd, NULL) == 0);
    say("types");

    struct sockaddr_nl at = {.nl_family = AF_NETLINK, .nl_pid = 100000 + getpid(), .nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR};
    CHECK_ERRNO(bind(fd, (struct sockaddr *)&at, 8), EINVAL);
    /* Others may run beside this one, and have the number. */
    while (bind(fd, (struct sockaddr *)&at, sizeof at) != 0) {
        CHECK(errno == EADDRINUSE);
        at.nl_pid++;
    }
    uint32_t taken = at.nl_pid;
    CHECK(id_of(fd, &groups) == taken && groups == (RTMGRP_LINK | RTMGRP_IPV4_IFADDR));
    CHECK_ERRNO(bind(second, (struct sockaddr *)&at, sizeof at), EADDRINUSE);
    at.nl_pid = 0;
    CHECK(bind(second, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(is_first_of_process(second));
    at.nl_pid = 1;
    CHECK_ERRNO(bind(second, (struct sockaddr *)&at, sizeof at), EINVAL);
    int third = make(SOCK_RAW);
    ask_link(third);
    CHECK((int32_t)id_of(third, NULL) < 0);
    at.nl_family = AF_INET;
    CHECK_ERRNO(bind(third, (struct sockaddr *)&at, sizeof at), EINVAL);
    at.nl_family = AF_NETLINK;
    say("port ids");

    struct sockaddr_nl peer;
    socklen_t length = sizeof peer;
    CHECK(getpeername(fd, (struct sockaddr *)&peer, &length) == 0 && peer.nl_family == AF_NETLINK && peer.nl_pid == 0);
    at = (struct sockaddr_nl){.nl_family = AF_NETLINK};
    CHECK(connect(third, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK_ERRNO(listen(third, 1), EOPNOTSUPP);
    CHECK_ERRNO(accept(third, NULL, NULL), EOPNOTSUPP);
    CHECK_ERRNO(shutdown(third, SHUT_RDWR), EOPNOTSUPP);
    say("no connections");

    int one = 1, group = RTNLGRP_LINK, none = 0;
    CHECK(setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group) == 0);
    CHECK(setsockopt(fd, SOL_NETLINK, NETLINK_DROP_MEMBERSHIP, &group, sizeof group) == 0);
    CHECK_ERRNO(setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &none, sizeof none), EINVAL);
    CHECK(number(fd, SOL_NETLINK, NETLINK_PKTINFO) == 0);
    CHECK(setsockopt(fd, SOL_NETLINK, NETLINK_PKTINFO, &one, sizeof one) == 0 && number(fd, SOL_NETLINK, NETLINK_PKTINFO) == 1);
    CHECK(setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &one, sizeof one) == 0);
    CHECK_ERRNO(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one), ENOPROTOOPT);
    say("options");

    /* Readiness. */
    struct pollfd ready = {.fd = fd, .events = POLLIN | POLLOUT};
    CHECK(poll(&ready, 1, 0) == 1 && ready.revents == POLLOUT);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = fd};
    CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0 && epoll_wait(set, &event, 1, 0) == 0);
    CHECK_ERRNO(recv(fd, buffer, sizeof buffer, 0), EAGAIN);
    ask_link(fd);
    CHECK(poll(&ready, 1, -1) == 1 && ready.revents == (POLLIN | POLLOUT));
    CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.events == EPOLLIN && epoll_wait(set, &event, 1, 0) == 0);
    char control[128];
    struct iovec part = {.iov_base = buffer, .iov_len = 20};
    struct msghdr message = {.msg_name = &peer, .msg_namelen = sizeof peer, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    CHECK(recvmsg(fd, &message, MSG_PEEK) == 20 && (message.msg_flags & MSG_TRUNC) && message.msg_namelen == sizeof peer);
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    CHECK(head && head->cmsg_level == SOL_NETLINK && head->cmsg_type == NETLINK_PKTINFO);
    CHECK(recv(fd, buffer, sizeof buffer, 0) > 20 && ((struct nlmsghdr *)buffer)->nlmsg_type == RTM_NEWLINK);
    CHECK_ERRNO(recv(fd, buffer, sizeof buffer, 0), EAGAIN);
    say("readiness");

    /* A receive waits for the answer to another thread's request, or until its time is over. */
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, ask_later, (void *)(intptr_t)second) == 0);
    CHECK(read(second, buffer, sizeof buffer) > 0 && pthread_join(thread, NULL) == 0);
    struct timeval limit = {.tv_usec = 1000};
    CHECK(setsockopt(second, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    CHECK_ERRNO(recv(second, buffer, sizeof buffer, 0), EAGAIN);
    say("waiting");

    /* A child has the socket, too; one of its own has its id. */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        ask_link(second);
        int own = make(SOCK_RAW);
        ask_link(own);
        CHECK(is_first_of_process(own));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(recv(second, buffer, sizeof buffer, 0) > 0 && ((struct nlmsghdr *)buffer)->nlmsg_pid == id_of(second, NULL));
    /* A port id is free again. */
    CHECK(close(fd) == 0);
    at.nl_pid = taken;
    int fourth = make(SOCK_RAW);
    CHECK(bind(fourth, (struct sockaddr *)&at, sizeof at) == 0);
    say("processes");
    return 0;
}
