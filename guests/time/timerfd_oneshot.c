/* timerfd, one-shot: relative, absolute, in the past, disarmed, gettime, blocking and non-blocking reads.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/timerfd.h>

int main(void)
{
    uint64_t count = 0;
    struct itimerspec spec = {.it_value = {0, 30 * NS_PER_MS}}, left;
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    CHECK(fd >= 0 && fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK_ERRNO(read(fd, &count, 8), EAGAIN);
    CHECK(timerfd_gettime(fd, &left) == 0 && left.it_value.tv_sec == 0 && left.it_value.tv_nsec == 0);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK(timerfd_settime(fd, 0, &spec, NULL) == 0);
    CHECK_ERRNO(read(fd, &count, 8), EAGAIN);
    CHECK(timerfd_gettime(fd, &left) == 0);
    CHECK(left.it_value.tv_nsec > 0 && left.it_value.tv_nsec <= 30 * NS_PER_MS);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    CHECK(poll(&p, 1, -1) == 1 && p.revents == POLLIN);
    CHECK(now_ns(CLOCK_MONOTONIC) - start >= 30 * NS_PER_MS);
    CHECK(read(fd, &count, 8) == 8);
    CHECK_ERRNO(read(fd, &count, 8), EAGAIN);
    CHECK(timerfd_gettime(fd, &left) == 0 && left.it_value.tv_nsec == 0);
    say("relative: %llu", (unsigned long long)count);

    set_nonblocking(fd);
    CHECK(fcntl(fd, F_SETFL, 0) == 0);
    spec.it_value = to_timespec(now_ns(CLOCK_MONOTONIC) + 20 * NS_PER_MS);
    CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0);
    CHECK(read(fd, &count, 8) == 8);
    CHECK(now_ns(CLOCK_MONOTONIC) >= spec.it_value.tv_sec * NS_PER_S + spec.it_value.tv_nsec);
    say("absolute, blocking read: %llu", (unsigned long long)count);
    spec.it_value = to_timespec(1);
    CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL) == 0);
    CHECK(read(fd, &count, 8) == 8);
    say("in the past: %llu", (unsigned long long)count);

    spec.it_value = to_timespec(3600 * NS_PER_S);
    CHECK(timerfd_settime(fd, 0, &spec, NULL) == 0);
    memset(&spec, 0, sizeof spec);
    CHECK(timerfd_settime(fd, 0, &spec, &left) == 0);
    CHECK(left.it_value.tv_sec >= 3590 && left.it_value.tv_sec <= 3600);
    CHECK(poll(&p, 1, 5) == 0);
    say("disarmed");

    CHECK_ERRNO(read(fd, &count, 4), EINVAL);
    CHECK_ERRNO(timerfd_create(12345, 0), EINVAL);
    CHECK_ERRNO(timerfd_create(CLOCK_MONOTONIC, 1), EINVAL);
    spec.it_value.tv_nsec = 2 * NS_PER_S;
    CHECK_ERRNO(timerfd_settime(fd, 0, &spec, NULL), EINVAL);
    CHECK_ERRNO(timerfd_settime(-1, 0, &left, NULL), EBADF);
    CHECK_ERRNO(timerfd_settime(0x7fff, 0, &left, NULL), EBADF);
    int real = timerfd_create(CLOCK_REALTIME, 0);
    spec.it_value = to_timespec(10 * NS_PER_MS);
    CHECK(timerfd_settime(real, 0, &spec, NULL) == 0);
    CHECK(read(real, &count, 8) == 8 && count == 1);
    say("realtime clock too");
    return 0;
}
