/* The host that the harness plays outside of the server: 10.0.0.9, a service a port (harness/src/outside.rs). */
#ifndef OUTSIDE_H
#define OUTSIDE_H

#include "guest.h"
#include <poll.h>

#define OUTSIDE_HOST 0x0a000009
#define OUTSIDE_ECHO 7
#define OUTSIDE_GREETER 13
#define OUTSIDE_GREETING "hello from outside\n"
#define OUTSIDE_SOURCE 19
#define OUTSIDE_SOURCE_BYTES (3 << 20)
#define OUTSIDE_RESETS 104
#define OUTSIDE_SILENT 110
/* Never answers. */
#define OUTSIDE_HANGS 111
#define OUTSIDE_FAILOVER 200
#define OUTSIDE_FAILOVER_EARLY 201

static inline __attribute__((unused)) struct sockaddr_in outside(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(OUTSIDE_HOST);
    return address;
}

static inline __attribute__((unused)) int outside_start(int fd, int port)
{
    struct sockaddr_in address = outside(port);
    return connect(fd, (struct sockaddr *)&address, sizeof address);
}

static inline __attribute__((unused)) int outside_connect(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK(outside_start(fd, port) == 0);
    return fd;
}

static inline __attribute__((unused)) int socket_error(int fd)
{
    int error = -1;
    socklen_t length = sizeof error;
    CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
    return error;
}

#endif
