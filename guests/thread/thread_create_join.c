/* pthread_create, join, exit: arguments, results, nested threads, many in a row, ESRCH and EDEADLK.
 *
 * expect: same
 */
#include "guest.h"

static void *twice(void *arg)
{
    return (void *)(2 * (intptr_t)arg);
}

static void *leave(void *arg)
{
    pthread_exit((void *)((intptr_t)arg + 1));
}

static void *tree(void *arg)
{
    intptr_t depth = (intptr_t)arg;
    if (depth == 0)
        return (void *)1;
    pthread_t left = spawn(tree, (void *)(depth - 1)), right = spawn(tree, (void *)(depth - 1));
    intptr_t a = (intptr_t)join(left), b = (intptr_t)join(right);
    return (void *)(a + b);
}

static void *join_itself(void *arg)
{
    (void)arg;
    CHECK(pthread_join(pthread_self(), NULL) == EDEADLK);
    return NULL;
}

int main(void)
{
    say("returned %ld", (long)join(spawn(twice, (void *)21)));
    say("pthread_exit %ld", (long)join(spawn(leave, (void *)41)));
    say("leaves %ld", (long)join(spawn(tree, (void *)5)));
    long sum = 0;
    for (long i = 0; i < 200; i++)
        sum += (long)join(spawn(twice, (void *)i));
    say("200 in a row: %ld", sum);
    pthread_t threads[50];
    for (long i = 0; i < 50; i++)
        threads[i] = spawn(twice, (void *)i);
    sum = 0;
    for (int i = 49; i >= 0; i--)
        sum += (long)join(threads[i]);
    say("50 at once: %ld", sum);
    join(spawn(join_itself, NULL));
    pthread_t t = spawn(twice, 0);
    CHECK(pthread_join(t, NULL) == 0);
    return 0;
}
