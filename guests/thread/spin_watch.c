/* A thread spins on a variable without any operation while the thread that would set it waits for its turn. Natively it ends;
 * with one running thread it cannot unless its wait is detected, so Skein must name the spinner (thread, address, how long) instead of hanging silently.
 *
 * expect: spin
 */
#include "guest.h"

static volatile int flag;

static void *setter(void *arg)
{
    CHECK(sem_wait(arg) == 0);
    sleep_ms(5);
    flag = 1;
    return NULL;
}

int main(void)
{
    sem_t go;
    CHECK(sem_init(&go, 0, 0) == 0);
    pthread_t thread = spawn(setter, &go);
    say("before");
    fflush(stdout);
    CHECK(sem_post(&go) == 0);
    /* Another value in every round: the wait cannot be detected. */
    uint64_t n = 1;
    while (!flag)
        n = n * 6364136223846793005 + 1442695040888963407;
    fprintf(stderr, "%d\n", n == 0);
    join(thread);
    say("the flag was set");
    return 0;
}
