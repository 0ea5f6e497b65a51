/* A thread waits for a plain flag, an atomic one, one that it reads through several functions, and one that it reads with
 * vector registers in use; another thread sets each. Meanwhile there is no call.
 *
 * expect: same
 */
#include "spin.h"

static volatile int plain;
static atomic_int atomic;
static struct {
    atomic_int lock;
    int states[4];
} table;
static volatile double number = 1;
static sem_t next;

static void *setter(void *arg)
{
    (void)arg;
    for (int i = 0; i < 4; i++) {
        CHECK(sem_wait(&next) == 0);
        sleep_ms(2);
        switch (i) {
        case 0:
            plain = 7;
            break;
        case 1:
            atomic_store(&atomic, 8);
            break;
        case 2:
            while (atomic_exchange(&table.lock, 1))
                PAUSE();
            table.states[2] = 9;
            atomic_store(&table.lock, 0);
            break;
        default:
            number = 2.5;
        }
    }
    return NULL;
}

/* As a database reads the state of a worker: under a lock, from a slot. */
static __attribute__((noinline)) int state_of(int slot)
{
    while (atomic_exchange(&table.lock, 1))
        PAUSE();
    int state = table.states[slot];
    atomic_store(&table.lock, 0);
    return state;
}

static __attribute__((noinline)) bool any_started(int *which)
{
    for (int slot = 0; slot < 4; slot++) {
        if (state_of(slot) != 0) {
            *which = slot;
            return true;
        }
    }
    return false;
}

int main(void)
{
    CHECK(sem_init(&next, 0, 0) == 0);
    pthread_t thread = spawn(setter, NULL);

    CHECK(sem_post(&next) == 0);
    while (!plain)
        ;
    say("plain: %d", plain);

    CHECK(sem_post(&next) == 0);
    while (!atomic_load(&atomic))
        PAUSE();
    say("atomic: %d", atomic_load(&atomic));

    CHECK(sem_post(&next) == 0);
    int which = -1;
    while (!any_started(&which))
        ;
    say("slot %d: %d", which, table.states[which]);

    CHECK(sem_post(&next) == 0);
    double sum;
    do {
        sum = number * 3 + 1;
    } while (sum < 5);
    say("number: %.2f", sum);

    join(thread);
    return 0;
}
