/* A thread blocked in select is woken by another thread; the rest of the timeout is returned.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/select.h>

static void *writer(void *arg)
{
    sleep_ms(20);
    write_all(*(int *)arg, "x", 1);
    return NULL;
}

int main(void)
{
    int p[2];
    CHECK(pipe(p) == 0);
    pthread_t thread = spawn(writer, &p[1]);
    fd_set in;
    FD_ZERO(&in);
    FD_SET(p[0], &in);
    struct timeval tv = {100, 0};
    CHECK(select(p[0] + 1, &in, NULL, NULL, &tv) == 1 && FD_ISSET(p[0], &in));
    CHECK(tv.tv_sec < 100 && tv.tv_sec > 80);
    join(thread);
    say("woken by a write");
    return 0;
}
