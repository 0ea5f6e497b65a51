/* POSIX message queues: names, priorities, full and empty, time limits, readiness, between processes.
 *
 * expect: same
 */
#include "guest.h"
#include <mqueue.h>
#include <poll.h>
#include <sys/wait.h>

static char name[64];

static void *late(void *arg)
{
    mqd_t queue = *(mqd_t *)arg;
    CHECK(mq_send(queue, "late", 4, 1) == 0);
    return NULL;
}

int main(void)
{
    char text[64];
    unsigned priority;
    struct mq_attr attributes = {.mq_maxmsg = 3, .mq_msgsize = 16}, found;
    snprintf(name, sizeof name, "/skein-mq-%d", getpid());
    CHECK_ERRNO(mq_open(name, O_RDONLY), ENOENT);
    CHECK_ERRNO(mq_open("no-slash", O_RDONLY), EINVAL);
    CHECK_ERRNO(mq_unlink(name), ENOENT);
    struct mq_attr wrong = {.mq_maxmsg = 0, .mq_msgsize = 16};
    CHECK_ERRNO(mq_open(name, O_RDWR | O_CREAT, 0600, &wrong), EINVAL);
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes);
    CHECK(queue >= 0);
    CHECK_ERRNO(mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attributes), EEXIST);
    CHECK((fcntl(queue, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(mq_getattr(queue, &found) == 0);
    CHECK(found.mq_maxmsg == 3 && found.mq_msgsize == 16 && found.mq_curmsgs == 0 && found.mq_flags == 0);

    CHECK_ERRNO(mq_send(queue, "0123456789abcdefg", 17, 0), EMSGSIZE);
    CHECK_ERRNO(mq_send(queue, "x", 1, 32768), EINVAL);
    CHECK_ERRNO(mq_receive(queue, text, 15, NULL), EMSGSIZE);
    CHECK(mq_send(queue, "low", 3, 1) == 0 && mq_send(queue, "high", 4, 9) == 0 && mq_send(queue, "low 2", 5, 1) == 0);
    mqd_t reader = mq_open(name, O_RDONLY | O_NONBLOCK);
    CHECK(reader >= 0 && mq_getattr(reader, &found) == 0 && found.mq_flags == O_NONBLOCK && found.mq_curmsgs == 3);
    CHECK_ERRNO(mq_send(reader, "x", 1, 0), EBADF);
    struct timespec limit = to_timespec(now_ns(CLOCK_REALTIME) + 10 * NS_PER_MS);
    CHECK_ERRNO(mq_timedsend(queue, "x", 1, 0, &limit), ETIMEDOUT);
    struct pollfd ask = {.fd = reader, .events = POLLIN | POLLOUT};
    CHECK(poll(&ask, 1, 0) == 1 && ask.revents == POLLIN);
    CHECK(mq_receive(reader, text, sizeof text, &priority) == 4 && priority == 9 && memcmp(text, "high", 4) == 0);
    CHECK(mq_receive(reader, text, sizeof text, &priority) == 3 && priority == 1 && memcmp(text, "low", 3) == 0);
    CHECK(mq_receive(reader, text, sizeof text, NULL) == 5 && memcmp(text, "low 2", 5) == 0);
    CHECK_ERRNO(mq_receive(reader, text, sizeof text, NULL), EAGAIN);
    ask.revents = 0;
    CHECK(poll(&ask, 1, 0) == 1 && ask.revents == POLLOUT);
    limit = to_timespec(now_ns(CLOCK_REALTIME) + 10 * NS_PER_MS);
    CHECK_ERRNO(mq_timedreceive(queue, text, sizeof text, NULL, &limit), ETIMEDOUT);
    found.mq_flags = O_NONBLOCK;
    CHECK(mq_setattr(queue, &found, NULL) == 0);
    CHECK_ERRNO(mq_receive(queue, text, sizeof text, NULL), EAGAIN);
    found.mq_flags = 0;
    CHECK(mq_setattr(queue, &found, NULL) == 0);
    say("priorities, full and empty");

    pthread_t thread = spawn(late, &queue);
    CHECK(mq_receive(queue, text, sizeof text, NULL) == 4);
    join(thread);
    int status;
    if (fork() == 0) {
        mqd_t mine = mq_open(name, O_WRONLY);
        CHECK(mine >= 0);
        for (int i = 0; i < 20; i++)
            CHECK(mq_send(mine, (char *)&i, sizeof i, 0) == 0);
        _exit(0);
    }
    for (int i = 0, got; i < 20; i++)
        CHECK(mq_receive(queue, text, sizeof text, NULL) == sizeof i && (memcpy(&got, text, sizeof got), got == i));
    CHECK(wait(&status) > 0 && status == 0);
    CHECK(mq_unlink(name) == 0);
    CHECK_ERRNO(mq_open(name, O_RDONLY), ENOENT);
    CHECK(mq_send(queue, "still", 5, 0) == 0 && mq_receive(reader, text, sizeof text, NULL) == 5);
    CHECK(mq_close(reader) == 0 && mq_close(queue) == 0);
    CHECK_ERRNO(mq_close(queue), EBADF);
    CHECK_ERRNO(mq_send(queue, "x", 1, 0), EBADF);
    say("between processes");
    return 0;
}
