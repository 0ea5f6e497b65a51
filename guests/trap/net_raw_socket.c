/* socket, bind and listen by inline system calls: around the interposed symbols. Handled or refused by name, never unseen.
 *
 * expect: same
 * or fatal: socket
 */
#include "raw.h"

int main(void)
{
    struct sockaddr_storage address;
    say("before");
    fflush(stdout);
    long fd = raw3(SYS_socket, AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    socklen_t length = loopback(AF_INET, 0, &address);
    CHECK(raw3(SYS_bind, fd, (long)&address, length) == 0);
    CHECK(raw3(SYS_listen, fd, 5, 0) == 0);
    CHECK(raw3(SYS_close, fd, 0, 0) == 0);
    say("a socket by inline system calls");
    return 0;
}
