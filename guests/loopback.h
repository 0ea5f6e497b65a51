/* Waits until sent packets have arrived over the loopback interface: for guests of sequences, whose answers must not depend on when Linux delivers them.
 *
 * Linux puts a packet for the loopback interface into a queue of the sender's processor, and takes it out soon: at once, or later on a busy machine. Its
 * answers (an acknowledgement, a reset) go into the same queue. So the process keeps to one processor, and when a datagram to itself has arrived,
 * everything before it is done. A connection takes three packets in a row.
 */
#ifndef LOOPBACK_H
#define LOOPBACK_H

#include "guest.h"

#define LOOPBACK_FD 500

static inline void loopback_begin(void)
{
    cpu_set_t all, one;
    CHECK(sched_getaffinity(0, sizeof all, &all) == 0);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &all))
            CPU_SET(i, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    struct sockaddr_storage address;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(fd >= 0);
    socklen_t length = loopback(AF_INET, 0, &address);
    CHECK(bind(fd, (struct sockaddr *)&address, length) == 0);
    length = loopback(AF_INET, local_port(fd), &address);
    CHECK(connect(fd, (struct sockaddr *)&address, length) == 0);
    CHECK(dup2(fd, LOOPBACK_FD) == LOOPBACK_FD);
    CHECK(close(fd) == 0);
}

static inline void arrived(void)
{
    int error = errno;
    char byte = 'x';
    for (int i = 0; i < 3; i++) {
        CHECK(send(LOOPBACK_FD, &byte, 1, 0) == 1);
        CHECK(recv(LOOPBACK_FD, &byte, 1, 0) == 1);
    }
    errno = error;
}

#endif
