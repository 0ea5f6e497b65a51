/* A writer's unlock lets blocked readers and writers in; a prefer-writer lock keeps new readers out behind a writer.
 *
 * expect: same
 */
#include "guest.h"

static pthread_rwlock_t lock;
static int written;

static void *blocked_reader(void *arg)
{
    (void)arg;
    CHECK(pthread_rwlock_rdlock(&lock) == 0);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    return NULL;
}

static void *blocked_writer(void *arg)
{
    (void)arg;
    CHECK(pthread_rwlock_wrlock(&lock) == 0);
    written++;
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    return NULL;
}

int main(void)
{
    pthread_rwlockattr_t attr;
    CHECK(pthread_rwlockattr_init(&attr) == 0);
    CHECK(pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP) == 0);
    for (int kind = 0; kind < 2; kind++) {
        pthread_t threads[6];
        CHECK(pthread_rwlock_init(&lock, kind ? &attr : NULL) == 0);
        CHECK(pthread_rwlock_wrlock(&lock) == 0);
        for (int i = 0; i < 6; i++)
            threads[i] = spawn(i % 2 ? blocked_writer : blocked_reader, NULL);
        sleep_ms(20);
        CHECK(pthread_rwlock_unlock(&lock) == 0);
        for (int i = 0; i < 6; i++)
            join(threads[i]);
        say("kind %d: all got in, written %d", kind, written);
        CHECK(pthread_rwlock_destroy(&lock) == 0);
    }
    /* A waiting writer goes before a later reader. */
    CHECK(pthread_rwlock_init(&lock, &attr) == 0);
    CHECK(pthread_rwlock_rdlock(&lock) == 0);
    pthread_t thread = spawn(blocked_writer, NULL);
    /* Until the writer waits, a reader still gets in. */
    int tried;
    for (int i = 0; (tried = pthread_rwlock_tryrdlock(&lock)) == 0 && i < 10000; i++) {
        CHECK(pthread_rwlock_unlock(&lock) == 0);
        sleep_ms(1);
    }
    CHECK(tried == EBUSY);
    CHECK(pthread_rwlock_unlock(&lock) == 0);
    join(thread);
    say("prefer writer: a new reader waits");
    return 0;
}
