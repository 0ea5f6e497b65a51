/* FIFOs: which opens succeed at once, the results of reads, writes and polls with and without the other end, and the remaining content.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/stat.h>

static char path[64], second[64], name[64];

static short ready(int fd)
{
    struct pollfd ask = {.fd = fd, .events = POLLIN | POLLOUT};
    CHECK(poll(&ask, 1, 0) >= 0);
    return ask.revents;
}

static void *open_to_read(void *arg)
{
    (void)arg;
    return (void *)(intptr_t)open(path, O_RDONLY);
}

static void *open_to_write(void *arg)
{
    (void)arg;
    return (void *)(intptr_t)open(path, O_WRONLY | O_CLOEXEC);
}

int main(void)
{
    char buffer[70000];
    struct stat by_path, by_fd;
    snprintf(path, sizeof path, "/mnt/fifo");
    snprintf(second, sizeof second, "/mnt/link");
    CHECK(signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    CHECK(mkfifo(path, 0620) == 0);
    CHECK_ERRNO(mkfifo(path, 0600), EEXIST);
    CHECK(stat(path, &by_path) == 0 && S_ISFIFO(by_path.st_mode));

    /* No other end there. */
    CHECK_ERRNO(open(path, O_WRONLY | O_NONBLOCK), ENXIO);
    CHECK_ERRNO(open(path, O_RDONLY | O_NONBLOCK | O_DIRECTORY), ENOTDIR);
    CHECK_ERRNO(open(path, O_RDWR | O_CREAT | O_EXCL, 0600), EEXIST);
    int reader = open(path, O_RDONLY | O_NONBLOCK);
    CHECK(reader >= 0);
    CHECK(ready(reader) == 0);
    CHECK(read(reader, buffer, 1) == 0);
    CHECK_ERRNO(write(reader, "x", 1), EBADF);
    CHECK(fstat(reader, &by_fd) == 0 && by_fd.st_ino == by_path.st_ino && by_fd.st_dev == by_path.st_dev);
    CHECK(by_fd.st_mode == by_path.st_mode);
    CHECK((fcntl(reader, F_GETFL) & (O_ACCMODE | O_NONBLOCK)) == (O_RDONLY | O_NONBLOCK));
    CHECK_ERRNO(lseek(reader, 0, SEEK_SET), ESPIPE);
    say("alone: no writer is no end yet");

    /* A writer comes, by a link, and goes. */
    CHECK(symlink(path, second) == 0);
    int writer = open(second, O_WRONLY | O_NONBLOCK | O_CREAT, 0600);
    CHECK(writer >= 0);
    CHECK_ERRNO(read(writer, buffer, 1), EBADF);
    CHECK_ERRNO(read(reader, buffer, 1), EAGAIN);
    CHECK(ready(writer) == POLLOUT && ready(reader) == 0);
    CHECK(write(writer, "hello", 5) == 5);
    CHECK(ready(reader) == POLLIN);
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, reader, &event) == 0);
    CHECK(close(writer) == 0);
    CHECK(epoll_wait(set, &event, 1, 0) == 1 && event.events == (EPOLLIN | EPOLLHUP));
    CHECK(ready(reader) == (POLLIN | POLLHUP));
    CHECK(read(reader, buffer, 10) == 5 && memcmp(buffer, "hello", 5) == 0);
    CHECK(read(reader, buffer, 10) == 0);
    CHECK(ready(reader) == POLLHUP);
    say("writer gone: data, then the end");

    /* Two writers, two readers: the stream ends when the last writer goes. */
    int writers[2] = {open(path, O_WRONLY), open(path, O_WRONLY)};
    int other = open(path, O_RDONLY);
    CHECK(writers[0] >= 0 && writers[1] >= 0 && other >= 0);
    CHECK(write(writers[0], "a", 1) == 1 && write(writers[1], "b", 1) == 1);
    CHECK(close(writers[0]) == 0);
    CHECK(read(other, buffer, 1) == 1 && buffer[0] == 'a');
    CHECK(read(reader, buffer, 1) == 1 && buffer[0] == 'b');
    CHECK_ERRNO(read(reader, buffer, 1), EAGAIN);
    CHECK(close(reader) == 0);
    CHECK(write(writers[1], "c", 1) == 1);
    CHECK(close(other) == 0);
    CHECK_ERRNO(write(writers[1], "d", 1), EPIPE);
    CHECK(ready(writers[1]) == (POLLOUT | POLLERR));
    /* The content stays while one end is open. */
    reader = open(path, O_RDONLY);
    CHECK(read(reader, buffer, 10) == 1 && buffer[0] == 'c');
    CHECK(close(writers[1]) == 0);
    CHECK(read(reader, buffer, 1) == 0);
    CHECK(close(reader) == 0);
    say("several ends");

    /* Both ends in one. */
    int both = open(path, O_RDWR | O_NONBLOCK);
    CHECK(both >= 0 && (fcntl(both, F_GETFL) & O_ACCMODE) == O_RDWR);
    CHECK(ready(both) == POLLOUT);
    CHECK_ERRNO(read(both, buffer, 1), EAGAIN);
    ssize_t held = write(both, memset(buffer, 'z', sizeof buffer), sizeof buffer);
    CHECK(held == 65536);
    CHECK(ready(both) == POLLIN);
    CHECK(read(both, buffer, sizeof buffer) == 65536);
    CHECK(write(both, "lost", 4) == 4);
    CHECK(close(both) == 0);
    reader = open(path, O_RDONLY | O_NONBLOCK);
    CHECK(read(reader, buffer, 10) == 0);
    say("both ends; nothing is left when all have gone");

    /* The name may go, and another file may get it. */
    writer = open(path, O_WRONLY);
    CHECK(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    CHECK_ERRNO(open(path, O_WRONLY | O_NONBLOCK), ENXIO);
    CHECK(write(writer, "old", 3) == 3 && read(reader, buffer, 10) == 3);
    CHECK(close(writer) == 0 && close(reader) == 0);
    say("another FIFO of the same name");

    /* Opens that wait for each other. */
    pthread_t thread = spawn(open_to_read, NULL);
    writer = open(path, O_WRONLY);
    reader = (int)(intptr_t)join(thread);
    CHECK(writer >= 0 && reader >= 0);
    CHECK(write(writer, "1", 1) == 1 && read(reader, buffer, 2) == 1);
    CHECK(close(writer) == 0 && close(reader) == 0);
    thread = spawn(open_to_write, NULL);
    reader = open(path, O_RDONLY);
    writer = (int)(intptr_t)join(thread);
    CHECK(writer >= 0 && reader >= 0);
    CHECK(fcntl(writer, F_GETFD) == FD_CLOEXEC && fcntl(reader, F_GETFD) == 0);
    say("opens wait for each other");

    /* By its descriptor's name. */
    snprintf(name, sizeof name, "/dev/fd/%d", writer);
    int again = open(name, O_WRONLY);
    CHECK(again >= 0 && again != writer && close(writer) == 0);
    CHECK(write(again, "2", 1) == 1 && read(reader, buffer, 2) == 1);
    CHECK(close(again) == 0 && read(reader, buffer, 2) == 0);
    int pipes[2];
    CHECK(pipe(pipes) == 0);
    snprintf(name, sizeof name, "/proc/self/fd/%d", pipes[1]);
    again = open(name, O_WRONLY);
    CHECK(again >= 0 && write(again, "3", 1) == 1 && read(pipes[0], buffer, 2) == 1);
    CHECK(close(again) == 0 && close(reader) == 0);
    say("by descriptor");

    CHECK(unlink(path) == 0 && unlink(second) == 0);
    say("done");
    return 0;
}
