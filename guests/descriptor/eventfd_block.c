/* A blocking eventfd: readers wait for a write, a writer waits for room, a semaphore lets exactly its count through.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/eventfd.h>

static int fd;

static void *reader(void *arg)
{
    uint64_t value;
    CHECK(read(fd, &value, 8) == 8);
    *(uint64_t *)arg = value;
    return NULL;
}

static void *writer(void *arg)
{
    (void)arg;
    CHECK(eventfd_write(fd, 5) == 0);
    return NULL;
}

int main(void)
{
    uint64_t values[3] = {0};
    fd = eventfd(0, 0);
    pthread_t thread = spawn(reader, &values[0]);
    sleep_ms(10);
    CHECK(eventfd_write(fd, 9) == 0);
    join(thread);
    say("reader got %llu", (unsigned long long)values[0]);

    CHECK(eventfd_write(fd, UINT64_MAX - 1) == 0);
    thread = spawn(writer, NULL);
    sleep_ms(10);
    uint64_t value;
    CHECK(eventfd_read(fd, &value) == 0 && value == UINT64_MAX - 1);
    join(thread);
    CHECK(eventfd_read(fd, &value) == 0 && value == 5);
    say("writer waited for room");
    CHECK(close(fd) == 0);

    fd = eventfd(0, EFD_SEMAPHORE);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = spawn(reader, &values[i]);
    CHECK(eventfd_write(fd, 3) == 0);
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    say("semaphore let %llu through", (unsigned long long)(values[0] + values[1] + values[2]));
    return 0;
}
