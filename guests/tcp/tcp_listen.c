/* listen: without bind it chooses a port; twice is fine; a connected socket refuses; shutdown wakes a blocked accept.
 *
 * expect: same
 */
#include "guest.h"

static void *blocked(void *arg)
{
    int listener = *(int *)arg;
    CHECK_ERRNO(accept(listener, NULL, NULL), EINVAL);
    return NULL;
}

int main(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_ERRNO(accept(fd, NULL, NULL), EINVAL);
    CHECK(listen(fd, 4) == 0);
    CHECK(local_port(fd) > 0);
    CHECK(listen(fd, 8) == 0);
    int client = tcp_connect(AF_INET, local_port(fd));
    CHECK_ERRNO(listen(client, 4), EINVAL);
    CHECK_ERRNO(listen(-1, 4), EBADF);
    CHECK_ERRNO(listen(STDIN_FILENO, 4), ENOTSOCK);
    int server = accept(fd, NULL, NULL);
    CHECK(server >= 0);
    say("listen without bind accepts");

    pthread_t thread = spawn(blocked, &fd);
    sleep_ms(20);
    CHECK(shutdown(fd, SHUT_RD) == 0);
    join(thread);
    say("shutdown woke accept with EINVAL");
    return 0;
}
