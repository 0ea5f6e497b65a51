/* A condition wait with recursive and errorcheck mutexes: the mutex is released while waiting, owned again afterwards.
 *
 * expect: same
 */
#include "guest.h"

static pthread_mutex_t mutex;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int ready;

static void *setter(void *arg)
{
    (void)arg;
    CHECK(pthread_mutex_lock(&mutex) == 0);
    ready = 1;
    CHECK(pthread_cond_signal(&cond) == 0);
    CHECK(pthread_mutex_unlock(&mutex) == 0);
    return NULL;
}

int main(void)
{
    int types[] = {PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK};
    for (int i = 0; i < 2; i++) {
        pthread_mutexattr_t attr;
        pthread_mutexattr_init(&attr);
        pthread_mutexattr_settype(&attr, types[i]);
        CHECK(pthread_mutex_init(&mutex, &attr) == 0);
        ready = 0;
        CHECK(pthread_mutex_lock(&mutex) == 0);
        pthread_t thread = spawn(setter, NULL);
        while (!ready)
            CHECK(pthread_cond_wait(&cond, &mutex) == 0);
        CHECK(pthread_mutex_unlock(&mutex) == 0);
        CHECK(pthread_mutex_unlock(&mutex) == EPERM);
        join(thread);
        CHECK(pthread_mutex_destroy(&mutex) == 0);
    }
    say("waited with both");
    return 0;
}
