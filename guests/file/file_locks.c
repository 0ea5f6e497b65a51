/* flock, fcntl locks and lockf between threads: a call that waits gives the turn away.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/file.h>

static int order[8], done;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void record(int who)
{
    pthread_mutex_lock(&mutex);
    order[done++] = who;
    pthread_mutex_unlock(&mutex);
}

static void *flocker(void *arg)
{
    int fd = open("lock", O_RDWR);
    CHECK(fd >= 0);
    CHECK_ERRNO(flock(fd, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    CHECK(flock(fd, LOCK_EX) == 0);
    record((int)(intptr_t)arg);
    sleep_ms(5);
    CHECK(close(fd) == 0);
    return NULL;
}

static void *description_locker(void *arg)
{
    (void)arg;
    int fd = open("lock", O_RDWR);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fd >= 0);
    CHECK_ERRNO(fcntl(fd, F_OFD_SETLK, &whole), EAGAIN);
    CHECK(fcntl(fd, F_OFD_SETLKW, &whole) == 0);
    record(9);
    CHECK(close(fd) == 0);
    return NULL;
}

int main(void)
{
    int fd = open("lock", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && write(fd, "0123456789", 10) == 10);
    CHECK(flock(fd, LOCK_EX) == 0);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = spawn(flocker, (void *)(intptr_t)i);
    sleep_ms(20);
    CHECK(done == 0);
    CHECK(flock(fd, LOCK_UN) == 0);
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    say("%d had the lock", done);
    note("in the order %d %d %d", order[0], order[1], order[2]);

    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CHECK(fcntl(fd, F_OFD_SETLKW, &whole) == 0);
    pthread_t thread = spawn(description_locker, NULL);
    sleep_ms(20);
    CHECK(done == 3);
    whole.l_type = F_UNLCK;
    CHECK(fcntl(fd, F_OFD_SETLK, &whole) == 0);
    join(thread);
    say("then %d", order[3]);

    /* A process' own locks never conflict. */
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && lockf(fd, F_LOCK, 5) == 0 && lockf(fd, F_TEST, 5) == 0);
    int second = open("lock", O_RDWR);
    struct flock part = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2, .l_len = 2};
    CHECK(fcntl(second, F_SETLKW, &part) == 0 && fcntl(second, F_GETLK, &part) == 0 && part.l_type == F_UNLCK);
    CHECK(close(second) == 0 && lockf(fd, F_ULOCK, 5) == 0 && close(fd) == 0);
    CHECK_ERRNO(flock(fd, LOCK_SH), EBADF);
    return 0;
}
