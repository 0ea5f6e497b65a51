/* exit from a second thread while others are blocked: handlers in reverse order, on_exit's status, the process ends.
 *
 * expect: same
 */
#include "guest.h"

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *blocked_lock(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&held);
    CHECK(!"got a mutex that is never free");
    return NULL;
}

static void *blocked_read(void *arg)
{
    char byte;
    CHECK(read(*(int *)arg, &byte, 1) == 1);
    return NULL;
}

static void handler_a(void)
{
    say("handler a");
}

static void handler_b(void)
{
    say("handler b");
}

static void handler_status(int status, void *arg)
{
    say("on_exit %d %s", status, (char *)arg);
}

static void *leaver(void *arg)
{
    (void)arg;
    sleep_ms(20);
    say("leaving");
    exit(0);
}

int main(void)
{
    int p[2];
    CHECK(atexit(handler_a) == 0 && atexit(handler_b) == 0);
    CHECK(on_exit(handler_status, "word") == 0);
    CHECK(pthread_mutex_lock(&held) == 0 && pipe(p) == 0);
    spawn(blocked_lock, NULL);
    spawn(blocked_read, &p[0]);
    spawn(leaver, NULL);
    pause();
    return 1;
}
