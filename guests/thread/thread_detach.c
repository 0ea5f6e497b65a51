/* Detached threads: by pthread_detach, by themselves, by attribute; joining one is refused.
 *
 * expect: same
 */
#include "guest.h"

static sem_t done, go;

static void *work(void *arg)
{
    if (arg)
        CHECK(pthread_detach(pthread_self()) == 0);
    CHECK(sem_wait(&go) == 0);
    CHECK(sem_post(&done) == 0);
    return NULL;
}

int main(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    int state;
    CHECK(sem_init(&done, 0, 0) == 0 && sem_init(&go, 0, 0) == 0);
    thread = spawn(work, NULL);
    CHECK(pthread_detach(thread) == 0);
    CHECK(pthread_join(thread, NULL) == EINVAL);
    CHECK(pthread_detach(thread) == EINVAL);
    spawn(work, &attr);
    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) == 0);
    CHECK(pthread_attr_getdetachstate(&attr, &state) == 0 && state == PTHREAD_CREATE_DETACHED);
    CHECK(pthread_create(&thread, &attr, work, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == EINVAL);
    for (int i = 0; i < 3; i++)
        CHECK(sem_post(&go) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(sem_wait(&done) == 0);
    say("three detached threads ran");
    return 0;
}
