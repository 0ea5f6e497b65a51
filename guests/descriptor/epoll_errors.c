/* epoll_ctl and epoll_wait errors: EEXIST, ENOENT, EBADF, EPERM, EINVAL; epoll_create's argument; close-on-exec.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

int main(void)
{
    int p[2], ep = epoll_create(1);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(ep >= 0);
    CHECK_ERRNO(epoll_create(0), EINVAL);
    CHECK_ERRNO(epoll_create(-1), EINVAL);
    CHECK_ERRNO(epoll_create1(1), EINVAL);
    CHECK(fcntl(ep, F_GETFD) == 0);
    int cloexec = epoll_create1(EPOLL_CLOEXEC);
    CHECK(fcntl(cloexec, F_GETFD) == FD_CLOEXEC);
    say("epoll_create: ok");

    CHECK(pipe(p) == 0);
    CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_MOD, p[0], &event), ENOENT);
    CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_DEL, p[0], &event), ENOENT);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event) == 0);
    CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event), EEXIST);
    CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, p[0], NULL) == 0);
    CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_DEL, p[0], NULL), ENOENT);
    CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_ADD, -1, &event), EBADF);
    CHECK_ERRNO(epoll_ctl(-1, EPOLL_CTL_ADD, p[0], &event), EBADF);
    CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_ADD, ep, &event), EINVAL);
    CHECK_ERRNO(epoll_ctl(p[0], EPOLL_CTL_ADD, p[1], &event), EINVAL);
    CHECK_ERRNO(epoll_ctl(ep, 99, p[0], &event), EINVAL);
    int file = open("/proc/self/exe", O_RDONLY);
    CHECK(file >= 0);
    CHECK_ERRNO(epoll_ctl(ep, EPOLL_CTL_ADD, file, &event), EPERM);
    CHECK_ERRNO(epoll_wait(-1, &event, 1, 0), EBADF);
    CHECK_ERRNO(epoll_wait(p[0], &event, 1, 0), EINVAL);
    CHECK_ERRNO(epoll_wait(file, &event, 1, 0), EINVAL);
    say("epoll_ctl and epoll_wait: errors as expected");
    return 0;
}
