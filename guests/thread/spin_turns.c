/* Two threads wait for each other in turn, and for a third one's timer; and one tries a lock that a thread that spins holds for most of its round.
 *
 * expect: same
 */
#include "spin.h"

#define ROUNDS 40

static volatile int turn;
static volatile int expired;
static atomic_int lock;
static volatile int go_on;

static void *player(void *arg)
{
    int me = (int)(intptr_t)arg;
    for (int round = 0; round < ROUNDS; round++) {
        while (turn % 2 != me)
            ;
        turn = turn + 1;
    }
    return NULL;
}

static void *timer(void *arg)
{
    (void)arg;
    sleep_ms(30);
    expired = 1;
    return NULL;
}

/* Holds the lock in nearly all instructions of its round. */
static void *holder(void *arg)
{
    (void)arg;
    for (;;) {
        while (atomic_exchange(&lock, 1))
            ;
        bool end = go_on != 0;
        for (volatile int i = 0; i < 20; i++)
            ;
        atomic_store(&lock, 0);
        if (end)
            return NULL;
    }
}

int main(void)
{
    pthread_t players[2];
    for (int i = 0; i < 2; i++)
        players[i] = spawn(player, (void *)(intptr_t)i);
    for (int i = 0; i < 2; i++)
        join(players[i]);
    say("turns: %d", turn);

    pthread_t thread = spawn(timer, NULL);
    while (!expired)
        ;
    join(thread);
    say("the timer has expired");

    /* One that spins, too, and one that tries now and then. */
    for (int yields = 0; yields < 2; yields++) {
        go_on = 0;
        thread = spawn(holder, NULL);
        sleep_ms(5);
        while (atomic_exchange(&lock, 1)) {
            if (yields)
                sched_yield();
        }
        go_on = 1;
        atomic_store(&lock, 0);
        join(thread);
        say("the lock was let go of");
    }
    return 0;
}
