/* Mutexes from static initialisers, zeroed memory and the heap, used without any init call.
 *
 * expect: same
 */
#include "guest.h"

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;

int main(void)
{
    CHECK(pthread_mutex_lock(&normal) == 0 && pthread_mutex_trylock(&normal) == EBUSY);
    CHECK(pthread_mutex_unlock(&normal) == 0);
    CHECK(pthread_mutex_lock(&recursive) == 0 && pthread_mutex_lock(&recursive) == 0);
    CHECK(pthread_mutex_unlock(&recursive) == 0 && pthread_mutex_unlock(&recursive) == 0);
    CHECK(pthread_mutex_unlock(&recursive) == EPERM);
    CHECK(pthread_mutex_lock(&errorcheck) == 0 && pthread_mutex_lock(&errorcheck) == EDEADLK);
    CHECK(pthread_mutex_unlock(&errorcheck) == 0);
    CHECK(pthread_mutex_lock(&adaptive) == 0 && pthread_mutex_unlock(&adaptive) == 0);
    pthread_mutex_t *heap = calloc(3, sizeof *heap);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_mutex_lock(&heap[i]) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(pthread_mutex_unlock(&heap[i]) == 0);
    free(heap);
    say("static initialisers work");
    return 0;
}
