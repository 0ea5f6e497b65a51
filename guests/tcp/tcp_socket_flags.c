/* socket with SOCK_NONBLOCK and SOCK_CLOEXEC, fstat says socket, SO_TYPE without the flags.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/stat.h>

int main(void)
{
    int flags[] = {0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC};
    for (int i = 0; i < 4; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | flags[i], 0), type = 0;
        socklen_t length = sizeof type;
        struct stat st;
        CHECK(fd >= 0);
        CHECK(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0);
        CHECK(fstat(fd, &st) == 0);
        say("flags %d: nonblock %d cloexec %d access %d type %d S_ISSOCK %d", i, (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0,
            fcntl(fd, F_GETFD), (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR, type == SOCK_STREAM, S_ISSOCK(st.st_mode));
        CHECK(close(fd) == 0);
    }
    CHECK(!isatty(socket(AF_INET, SOCK_STREAM, 0)));
    return 0;
}
