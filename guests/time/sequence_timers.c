/* Random sequences of calls on timers, one thread: timerfds (relative, absolute, in the past, periodic, disarmed, wrong), POSIX timers that send blocked
 * signals or nothing, interval timers, and sleeps that end at once. A time is either long past or hours ahead, so that no answer depends on when a call is
 * made: what is left of a time, and a number of expirations, count as "some". Linux and Skein answer alike, and so do epoll and poll.
 *
 * expect: same
 * sequences: 5000
 */
#include "sequence.h"
#include <sys/time.h>
#include <sys/timerfd.h>

#define TIMERS 4

enum kind { NONE, TIMER, EPOLL };
static const char *const names[] = {"none", "timerfd", "epoll"};
static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME};

static struct {
    int there, silent;
    timer_t timer;
} timers[TIMERS];

static const char *amount(struct timespec time)
{
    return time.tv_sec == 0 && time.tv_nsec == 0 ? "none" : "some";
}

/* What is left of an absolute time depends on the clock; an interval is told exactly. */
static void told_spec(const struct itimerspec *spec)
{
    say("  %s left, every %ld.%09ld", amount(spec->it_value), (long)spec->it_interval.tv_sec, spec->it_interval.tv_nsec);
}

/* A time for `clock`; `*absolute` says which kind. */
static struct itimerspec draw_spec(clockid_t clock, int *absolute)
{
    struct itimerspec spec = {.it_value = {0, 0}};
    *absolute = 0;
    switch (below(8)) {
    case 0:
    case 1:
        spec.it_value.tv_sec = 3600 + below(100);
        break;
    case 2:
        /* Long past. */
        *absolute = 1;
        spec.it_value.tv_nsec = 1 + below(1000);
        break;
    case 3: {
        struct timespec now;
        CHECK(clock_gettime(clock, &now) == 0);
        *absolute = 1;
        spec.it_value.tv_sec = now.tv_sec + 3600;
        break;
    }
    case 4:
        *absolute = (int)below(2);
        break;
    case 5:
        spec.it_value.tv_sec = 1;
        spec.it_value.tv_nsec = below(2) ? -1 : 1000000000;
        break;
    case 6:
        spec.it_value.tv_sec = -1;
        *absolute = (int)below(2);
        break;
    default:
        *absolute = 1;
        spec.it_value.tv_nsec = 1;
        spec.it_interval.tv_sec = 7200;
        break;
    }
    if (below(3) == 0)
        spec.it_interval.tv_sec = 7200 + below(100);
    else if (below(16) == 0)
        spec.it_interval.tv_nsec = 1000000000;
    return spec;
}

static void make(void)
{
    static const int wrong[] = {CLOCK_PROCESS_CPUTIME_ID, CLOCK_MONOTONIC_RAW, 77};
    if (!room_for(2))
        return;
    if (below(4) == 0) {
        make_epoll();
        return;
    }
    int which = below(8) ? (int)below(4) : -1;
    clockid_t clock = which < 0 ? ONE_OF(wrong) : clocks[which];
    int flags = TFD_NONBLOCK | (below(3) ? TFD_CLOEXEC : 0) | (below(16) ? 0 : 4);
    int fd = timerfd_create(clock, flags);
    tell(fd, "timerfd_create %d %x", clock, (unsigned)flags);
    if (fd >= 0)
        add(TIMER, fd, NULL, NULL)->note = clock;
}

static void set(struct file *f)
{
    int absolute;
    struct itimerspec spec = draw_spec(f->note, &absolute), old;
    memset(&old, 0, sizeof old);
    int flags = absolute ? TFD_TIMER_ABSTIME : 0;
    if (below(16) == 0)
        flags |= 8;
    int rc = timerfd_settime(f->fd, flags, &spec, below(2) ? &old : NULL);
    tell(rc, "timerfd_settime %s %d %x %s", kind_names[f->kind], f->fd, (unsigned)flags, amount(spec.it_value));
    if (rc == 0)
        told_spec(&old);
}

static void take(struct file *f)
{
    uint64_t count = 0;
    size_t room = below(8) ? 8 : below(8);
    ssize_t got = read(f->fd, &count, room);
    told_of("read", f, (long)room, got);
    if (got == 8)
        say("  %s", count == 0 ? "none" : "some");
}

static void ask(struct file *f)
{
    struct itimerspec now;
    int rc;
    switch (below(5)) {
    case 0:
        told_of("F_GETFL", f, 0, fcntl(f->fd, F_GETFL) & ~0100000);
        break;
    case 1:
        told_of("write", f, 8, write(f->fd, "12345678", 8));
        break;
    case 2:
        told_of("lseek", f, 0, lseek(f->fd, 0, SEEK_CUR));
        break;
    default:
        rc = timerfd_gettime(f->fd, &now);
        told_of("timerfd_gettime", f, 0, rc);
        if (rc == 0)
            told_spec(&now);
        break;
    }
}

static void drop_signals(void)
{
    struct timespec none = {0, 0};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, 34);
    sigaddset(&set, 35);
    while (sigtimedwait(&set, NULL, &none) > 0)
        ;
}

static void use_timer(int at)
{
    struct sigevent event = {.sigev_notify = below(3) ? SIGEV_SIGNAL : SIGEV_NONE, .sigev_signo = 34 + (int)below(2)};
    struct itimerspec spec, old;
    int rc, absolute;
    memset(&old, 0, sizeof old);
    event.sigev_value.sival_int = at;
    if (!timers[at].there) {
        clockid_t clock = clocks[below(4)];
        if (below(16) == 0)
            event.sigev_signo = 65;
        rc = timer_create(clock, &event, &timers[at].timer);
        tell(rc, "timer_create %d, %d", at, event.sigev_notify);
        timers[at].there = rc == 0;
        timers[at].silent = event.sigev_notify == SIGEV_NONE;
        return;
    }
    switch (below(6)) {
    case 0:
        /* What becomes of a signal that was sent already differs from kernel to kernel; so below. */
        drop_signals();
        tell(timer_delete(timers[at].timer), "timer_delete %d", at);
        timers[at].there = 0;
        break;
    case 1:
        tell(timer_getoverrun(timers[at].timer), "timer_getoverrun %d", at);
        break;
    case 2:
        rc = timer_gettime(timers[at].timer, &old);
        tell(rc, "timer_gettime %d", at);
        told_spec(&old);
        break;
    default:
        spec = draw_spec(CLOCK_MONOTONIC, &absolute);
        if (absolute && spec.it_value.tv_sec > 0)
            /* Which clock it has is not noted. */
            return;
        if (timers[at].silent && spec.it_value.tv_sec == 0 && spec.it_value.tv_nsec == 0)
            /* Linux goes on to tell what was left of a timer that sends nothing. */
            return;
        if (absolute)
            /* Overruns are a matter of time. */
            spec.it_interval.tv_sec = 0;
        drop_signals();
        rc = timer_settime(timers[at].timer, absolute ? TIMER_ABSTIME : 0, &spec, &old);
        tell(rc, "timer_settime %d %s %s", at, absolute ? "absolute" : "relative", amount(spec.it_value));
        if (rc == 0)
            told_spec(&old);
        break;
    }
}

static void take_signal(void)
{
    struct timespec none = {0, 0};
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, 34);
    sigaddset(&set, 35);
    int rc = sigtimedwait(&set, &info, &none);
    told("sigtimedwait", rc);
    if (rc > 0)
        say("  code %d, timer %d, overrun %d", info.si_code, info.si_value.sival_int, info.si_overrun);
}

static void interval_timer(void)
{
    struct itimerval value = {.it_value = {.tv_sec = below(3) ? 5000 + below(10) : 0}}, old;
    memset(&old, 0, sizeof old);
    if (below(4) == 0)
        value.it_interval.tv_sec = 9000;
    if (below(8) == 0)
        value.it_value.tv_usec = below(2) ? -1 : 1000000;
    int rc;
    switch (below(4)) {
    case 0:
        rc = getitimer(ITIMER_REAL, &old);
        told("getitimer", rc);
        break;
    case 1:
        /* Seconds, rounded. */
        tell(alarm(below(2) ? 7000 : 0) > 0, "alarm");
        return;
    case 2:
        told("setitimer 5", setitimer(5, &value, &old));
        return;
    default:
        rc = setitimer(ITIMER_REAL, &value, &old);
        tell(rc, "setitimer %ld %ld", (long)value.it_value.tv_sec, (long)value.it_value.tv_usec);
        break;
    }
    if (rc == 0)
        say("  %s left, every %ld", old.it_value.tv_sec || old.it_value.tv_usec ? "some" : "none",
            (long)old.it_interval.tv_sec);
}

static void sleep_not(void)
{
    static const struct timespec times[] = {{0, 0}, {0, -1}, {-1, 0}, {0, 1000000000}};
    static const clockid_t any[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW, 77};
    struct timespec time = ONE_OF(times), past = {0, 1};
    clockid_t clock = ONE_OF(any);
    switch (below(4)) {
    case 0:
        tell(nanosleep(&time, NULL), "nanosleep %ld.%ld", (long)time.tv_sec, time.tv_nsec);
        break;
    case 1:
        tell_error(clock_nanosleep(clock, 0, &time, NULL), "clock_nanosleep %d %ld.%ld", clock, (long)time.tv_sec,
                   time.tv_nsec);
        break;
    case 2:
        tell_error(clock_nanosleep(clock, TIMER_ABSTIME, &past, NULL), "clock_nanosleep %d, past", clock);
        break;
    default:
        tell(clock_getres(clock, &time), "clock_getres %d", clock);
        break;
    }
}

static void act(void)
{
    struct file *f = below(4) ? some_of(TIMER) : some(), *other = some();
    if (f == NULL || below(6) == 0) {
        make();
        return;
    }
    switch (below(14)) {
    case 0:
    case 1:
    case 2:
        set(f);
        break;
    case 3:
    case 4:
        take(f);
        break;
    case 5:
        ask(f);
        break;
    case 6:
        duplicate(f);
        break;
    case 7:
        if (below(2))
            close_one(f);
        else
            poll_all();
        break;
    case 8:
    case 9:
        use_timer((int)below(TIMERS));
        break;
    case 10:
        take_signal();
        break;
    case 11:
        if (below(2))
            interval_timer();
        else
            sleep_not();
        break;
    default:
        use_epoll(other, ~0u);
        break;
    }
}

static void end(void)
{
    struct itimerval off = {.it_value = {0, 0}};
    for (int i = 0; i < TIMERS; i++)
        if (timers[i].there) {
            CHECK(timer_delete(timers[i].timer) == 0);
            timers[i].there = 0;
        }
    CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
    drop_signals();
    close_all();
}

int main(int argc, char **argv)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, 34);
    sigaddset(&set, 35);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    kind_names = names;
    epoll_kind = EPOLL;
    return run_sequences(argc, argv, &(struct sequences){.calls = 60, .act = act, .end = end});
}
