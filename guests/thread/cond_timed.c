/* pthread_cond_timedwait on both clocks and cond_clockwait: time out, signalled in time, past deadline, bad deadline.
 *
 * expect: same
 */
#include "guest.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t on_realtime = PTHREAD_COND_INITIALIZER, on_monotonic;
static int ready;

static void *signaller(void *arg)
{
    sleep_ms(20);
    CHECK(pthread_mutex_lock(&lock) == 0);
    ready = 1;
    CHECK(pthread_cond_signal(arg) == 0);
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return NULL;
}

static void exercise(const char *what, pthread_cond_t *cond, clockid_t clock, int explicit_clock)
{
    struct timespec until = to_timespec(now_ns(clock) + 30 * NS_PER_MS);
    CHECK(pthread_mutex_lock(&lock) == 0);
    int rc = explicit_clock ? pthread_cond_clockwait(cond, &lock, clock, &until)
                            : pthread_cond_timedwait(cond, &lock, &until);
    CHECK(rc == ETIMEDOUT);
    CHECK(now_ns(clock) >= until.tv_sec * NS_PER_S + until.tv_nsec);
    CHECK(pthread_mutex_trylock(&lock) == EBUSY); /* The mutex is ours again. */
    until = to_timespec(1);
    CHECK(pthread_cond_timedwait(cond, &lock, &until) == ETIMEDOUT);
    until.tv_nsec = -1;
    CHECK(pthread_cond_timedwait(cond, &lock, &until) == EINVAL);
    until = to_timespec(now_ns(clock) + 100 * NS_PER_S);
    ready = 0;
    pthread_t thread = spawn(signaller, cond);
    while (!ready)
        CHECK((explicit_clock ? pthread_cond_clockwait(cond, &lock, clock, &until)
                              : pthread_cond_timedwait(cond, &lock, &until)) == 0);
    CHECK(pthread_mutex_unlock(&lock) == 0);
    join(thread);
    say("%s: timed out, then signalled", what);
}

int main(void)
{
    pthread_condattr_t attr;
    clockid_t clock;
    CHECK(pthread_condattr_init(&attr) == 0);
    CHECK(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_condattr_getclock(&attr, &clock) == 0 && clock == CLOCK_MONOTONIC);
    CHECK(pthread_cond_init(&on_monotonic, &attr) == 0);
    CHECK(pthread_condattr_destroy(&attr) == 0);
    exercise("realtime", &on_realtime, CLOCK_REALTIME, 0);
    exercise("monotonic", &on_monotonic, CLOCK_MONOTONIC, 0);
    exercise("clockwait monotonic on a realtime condition", &on_realtime, CLOCK_MONOTONIC, 1);
    CHECK(pthread_cond_destroy(&on_monotonic) == 0);
    return 0;
}
