/* The receiver of a signal: a thread, or the thread of a process that has it unblocked; threads inherit masks; handlers run while their thread is
 * blocked in a lock, a condition variable, a join.
 *
 * expect: same
 */
#include "guest.h"

static pthread_t threads[3];
static volatile int took[3];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int ready, done;

static void handler(int number)
{
    (void)number;
    for (int i = 0; i < 3; i++)
        if (pthread_equal(pthread_self(), threads[i]))
            took[i]++;
}

static void *blocked_in_cond(void *arg)
{
    CHECK(pthread_mutex_lock(&lock) == 0);
    ready++;
    while (!done)
        CHECK(pthread_cond_wait(&changed, &lock) == 0);
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return arg;
}

static void *open_one(void *arg)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &one, NULL) == 0);
    return blocked_in_cond(arg);
}

static void wait_for(int index, int count)
{
    while (took[index] < count)
        sleep_ms(1);
}

static void *kicker(void *arg)
{
    sleep_ms(10);
    CHECK(pthread_kill(threads[0], SIGUSR2) == 0);
    wait_for(0, 1);
    sleep_ms(1);
    return arg;
}

int main(void)
{
    sigset_t one;
    signal(SIGUSR1, handler);
    signal(SIGUSR2, handler);
    threads[0] = pthread_self();
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &one, NULL) == 0);
    threads[1] = spawn(blocked_in_cond, NULL);
    threads[2] = spawn(open_one, NULL);
    for (;;) {
        CHECK(pthread_mutex_lock(&lock) == 0);
        int now = ready;
        CHECK(pthread_mutex_unlock(&lock) == 0);
        if (now == 2)
            break;
        sleep_ms(1);
    }
    CHECK(kill(getpid(), SIGUSR1) == 0);
    wait_for(2, 1);
    CHECK(pthread_kill(threads[1], SIGUSR2) == 0);
    wait_for(1, 1);
    CHECK(pthread_kill(threads[1], SIGUSR1) == 0);
    say("process %d %d %d", took[0], took[1], took[2]);

    /* Both wait for the lock meanwhile. */
    CHECK(pthread_mutex_lock(&lock) == 0);
    done = 1;
    CHECK(pthread_cond_broadcast(&changed) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    wait_for(2, 2);
    CHECK(pthread_mutex_unlock(&lock) == 0);
    join(threads[1]);
    join(threads[2]);
    say("lock %d %d %d", took[0], took[1], took[2]);

    pthread_t t = spawn(kicker, NULL);
    join(t);
    CHECK(took[0] == 1);
    say("join %d", took[0]);
    CHECK(pthread_kill(pthread_self(), 0) == 0);
    CHECK(pthread_kill(pthread_self(), 65) == EINVAL);
    return 0;
}
