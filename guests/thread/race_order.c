/* The order in which threads start, take a lock, sleep and write to one pipe: recorded on standard error.
 *
 * expect: same
 */
#include "guest.h"

static int p[2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *member(void *arg)
{
    char c = (char)('a' + (long)arg);
    for (int i = 0; i < 10; i++) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        write_all(p[1], &c, 1);
        CHECK(pthread_mutex_unlock(&lock) == 0);
        if ((i + (long)arg) % 3 == 0)
            sleep_ms(1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[5];
    char order[51] = {0};
    CHECK(pipe(p) == 0);
    for (long i = 0; i < 5; i++)
        threads[i] = spawn(member, (void *)i);
    for (int i = 0; i < 5; i++)
        join(threads[i]);
    read_exact(p[0], order, 50);
    note("%s", order);
    say("50 letters");
    return 0;
}
