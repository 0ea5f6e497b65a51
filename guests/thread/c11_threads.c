/* C11 threads: thrd_create, join, exit, detach, equal, current, yield; mtx and cnd of each kind; tss; call_once.
 *
 * expect: same
 */
#include "guest.h"
#include <threads.h>

static mtx_t lock;
static cnd_t cond;
static int ready, once_runs, destroyed;
static once_flag flag = ONCE_FLAG_INIT;
static tss_t key;

static void run_once(void)
{
    once_runs++;
}

static void destroy(void *value)
{
    destroyed += *(int *)value;
}

static int body(void *arg)
{
    call_once(&flag, run_once);
    CHECK(tss_set(key, arg) == thrd_success && tss_get(key) == arg);
    CHECK(mtx_lock(&lock) == thrd_success);
    ready++;
    CHECK(cnd_signal(&cond) == thrd_success);
    CHECK(mtx_unlock(&lock) == thrd_success);
    if (*(int *)arg == 2)
        thrd_exit(22);
    return 11;
}

static int try_locked(void *arg)
{
    struct timespec until;
    CHECK(mtx_trylock(arg) == thrd_busy);
    CHECK(timespec_get(&until, TIME_UTC) == TIME_UTC);
    until = to_timespec(until.tv_sec * NS_PER_S + until.tv_nsec + 20 * NS_PER_MS);
    CHECK(mtx_timedlock(arg, &until) == thrd_timedout);
    return 0;
}

static int detached(void *arg)
{
    CHECK(mtx_lock(&lock) == thrd_success);
    *(int *)arg = 9;
    CHECK(cnd_broadcast(&cond) == thrd_success);
    CHECK(mtx_unlock(&lock) == thrd_success);
    return 0;
}

int main(void)
{
    thrd_t threads[2];
    int values[2] = {1, 2}, result, done = 0;
    CHECK(mtx_init(&lock, mtx_plain) == thrd_success && cnd_init(&cond) == thrd_success);
    CHECK(tss_create(&key, destroy) == thrd_success);
    for (int i = 0; i < 2; i++)
        CHECK(thrd_create(&threads[i], body, &values[i]) == thrd_success);
    CHECK(mtx_lock(&lock) == thrd_success);
    while (ready < 2)
        CHECK(cnd_wait(&cond, &lock) == thrd_success);
    CHECK(mtx_unlock(&lock) == thrd_success);
    for (int i = 0; i < 2; i++) {
        CHECK(thrd_join(threads[i], &result) == thrd_success);
        say("thread %d: %d", i, result);
    }
    say("once %d, destroyed %d", once_runs, destroyed);
    CHECK(thrd_equal(thrd_current(), thrd_current()));
    thrd_yield();

    mtx_t timed;
    CHECK(mtx_init(&timed, mtx_timed | mtx_recursive) == thrd_success);
    CHECK(mtx_lock(&timed) == thrd_success && mtx_trylock(&timed) == thrd_success);
    CHECK(thrd_create(&threads[0], try_locked, &timed) == thrd_success);
    CHECK(thrd_join(threads[0], NULL) == thrd_success);
    CHECK(mtx_unlock(&timed) == thrd_success && mtx_unlock(&timed) == thrd_success);
    mtx_destroy(&timed);

    struct timespec until;
    CHECK(timespec_get(&until, TIME_UTC) == TIME_UTC);
    until = to_timespec(until.tv_sec * NS_PER_S + until.tv_nsec + 20 * NS_PER_MS);
    CHECK(mtx_lock(&lock) == thrd_success);
    CHECK(cnd_timedwait(&cond, &lock, &until) == thrd_timedout);
    CHECK(thrd_create(&threads[0], detached, &done) == thrd_success);
    CHECK(thrd_detach(threads[0]) == thrd_success);
    while (!done)
        CHECK(cnd_wait(&cond, &lock) == thrd_success);
    CHECK(mtx_unlock(&lock) == thrd_success);
    say("timed out, then told by a detached thread: %d", done);
    return 0;
}
