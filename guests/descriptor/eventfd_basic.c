/* eventfd: counter, semaphore mode, overflow, flags, sizes, eventfd_read and eventfd_write.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/eventfd.h>

int main(void)
{
    uint64_t value = 0;
    int fd = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK(eventfd_write(fd, 4) == 0);
    CHECK(read(fd, &value, sizeof value) == 8);
    say("counter %llu", (unsigned long long)value);
    CHECK_ERRNO(read(fd, &value, sizeof value), EAGAIN);
    CHECK_ERRNO(read(fd, &value, 4), EINVAL);
    CHECK_ERRNO(write(fd, &value, 4), EINVAL);
    value = UINT64_MAX;
    CHECK_ERRNO(write(fd, &value, 8), EINVAL);
    value = UINT64_MAX - 1;
    CHECK(write(fd, &value, 8) == 8);
    struct pollfd p = {.fd = fd, .events = POLLIN | POLLOUT};
    CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLIN);
    value = 1;
    CHECK_ERRNO(write(fd, &value, 8), EAGAIN);
    CHECK(eventfd_read(fd, &value) == 0 && value == UINT64_MAX - 1);
    CHECK(poll(&p, 1, 0) == 1 && p.revents == POLLOUT);
    say("overflow refused");

    int sem = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
    CHECK(read(sem, &value, 8) == 8 && value == 1);
    CHECK(read(sem, &value, 8) == 8 && value == 1);
    CHECK_ERRNO(read(sem, &value, 8), EAGAIN);
    say("semaphore counts down by one");
    CHECK_ERRNO(eventfd(0, 0x10), EINVAL);
    return 0;
}
