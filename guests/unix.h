/* Shared by guests of UNIX sockets. */
#ifndef UNIX_H
#define UNIX_H

#include "guest.h"
#include <stddef.h>
#include <sys/stat.h>
#include <sys/un.h>

/* The end of an abstract name: the working directory's device, which natively differs between concurrent runs. */
#define OWN_LENGTH 8

/* An address of a path, or of an abstract name when it begins with '@'; returns its length. */
static inline __attribute__((unused)) socklen_t unix_address(const char *name, struct sockaddr_un *address)
{
    size_t length = strlen(name);
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    CHECK(length + OWN_LENGTH < sizeof address->sun_path);
    memcpy(address->sun_path, name, length);
    if (name[0] == '@') {
        struct stat own;
        CHECK(stat(".", &own) == 0);
        snprintf(address->sun_path + length, OWN_LENGTH + 1, "%0*x", OWN_LENGTH, (unsigned)own.st_dev);
        address->sun_path[0] = 0;
        return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + OWN_LENGTH);
    }
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1);
}

static inline __attribute__((unused)) int unix_bind(int type, const char *name)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, type, 0);
    CHECK(fd >= 0);
    CHECK(bind(fd, (struct sockaddr *)&address, unix_address(name, &address)) == 0);
    return fd;
}

static inline __attribute__((unused)) int unix_listen(int type, const char *name, int backlog)
{
    int fd = unix_bind(type, name);
    CHECK(listen(fd, backlog) == 0);
    return fd;
}

static inline __attribute__((unused)) int try_connect(int fd, const char *name)
{
    struct sockaddr_un address;
    return connect(fd, (struct sockaddr *)&address, unix_address(name, &address));
}

static inline __attribute__((unused)) int unix_connect(int type, const char *name)
{
    int fd = socket(AF_UNIX, type, 0);
    CHECK(fd >= 0);
    CHECK(try_connect(fd, name) == 0);
    return fd;
}

/* Sends `length` bytes with `count` descriptors beside them. */
static inline __attribute__((unused)) ssize_t send_fds(int fd, const void *data, size_t length, const int *fds, int count)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(300 * sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    struct iovec part = {(void *)(uintptr_t)data, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN((size_t)count * sizeof(int));
        memcpy(CMSG_DATA(&control.head), fds, (size_t)count * sizeof(int));
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL);
}

/* Receives into `data`; at most `room` descriptors; their number goes to `*count`, the message's flags to `*flags`. */
static inline __attribute__((unused)) ssize_t receive_fds(int fd, void *data, size_t length, int *fds, int room, int *count,
                                                          int *flags)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(300 * sizeof(int))];
    } control;
    struct iovec part = {data, length};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control};
    message.msg_controllen = room > 0 ? CMSG_LEN((size_t)room * sizeof(int)) : 0;
    ssize_t n = recvmsg(fd, &message, *flags);
    *flags = n < 0 ? 0 : message.msg_flags;
    *count = 0;
    if (n < 0)
        return n;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
        CHECK(head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS);
        size_t bytes = head->cmsg_len - CMSG_LEN(0);
        CHECK(*count * sizeof(int) + bytes <= (size_t)(room > 0 ? room : 0) * sizeof(int));
        memcpy(fds + *count, CMSG_DATA(head), bytes);
        *count += (int)(bytes / sizeof(int));
    }
    return n;
}

#endif
