/* epoll_wait timeouts: 0, some, and -1 ended by another thread.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/epoll.h>

static void *late_writer(void *arg)
{
    sleep_ms(20);
    write_all(*(int *)arg, "w", 1);
    return NULL;
}

int main(void)
{
    int p[2], ep = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN}, got;
    CHECK(pipe(p) == 0);
    CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &event) == 0);
    CHECK(epoll_wait(ep, &got, 1, 0) == 0);
    int64_t start = now_ns(CLOCK_MONOTONIC);
    CHECK(epoll_wait(ep, &got, 1, 50) == 0);
    int64_t took = now_ns(CLOCK_MONOTONIC) - start;
    CHECK(took >= 50 * NS_PER_MS);
    note("took %lld ns", (long long)took);
    say("timed out after at least 50 ms");
    pthread_t thread = spawn(late_writer, &p[1]);
    CHECK(epoll_wait(ep, &got, 1, -1) == 1);
    join(thread);
    say("woken by a write");
    thread = spawn(late_writer, &p[1]);
    CHECK(epoll_wait(ep, &got, 1, 60000) == 1);
    join(thread);
    say("woken before the timeout");
    return 0;
}
