/* main leaves by pthread_exit while others go on: the process ends with the last thread, atexit handlers run then.
 *
 * expect: same
 */
#include "guest.h"

static pthread_t first;

static void at_end(void)
{
    say("atexit");
    fflush(stdout);
}

static void *last(void *arg)
{
    (void)arg;
    CHECK(pthread_join(first, NULL) == 0);
    say("main thread joined");
    sleep_ms(10);
    say("last thread ends");
    return NULL;
}

int main(void)
{
    first = pthread_self();
    CHECK(atexit(at_end) == 0);
    spawn(last, NULL);
    pthread_exit(NULL);
}
