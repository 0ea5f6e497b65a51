/* A thread that polls a file by its path, and one that polls a file's content, let others run: a call about files is an operation of the turn.
 *
 * expect: same
 */
#include "guest.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

static void *make(void *unused)
{
    (void)unused;
    int fd = open("there", O_WRONLY | O_CREAT | O_EXCL, 0644);
    CHECK(fd >= 0);
    CHECK(write(fd, "x", 1) == 1 && close(fd) == 0);
    return NULL;
}

int main(void)
{
    pthread_t thread;
    struct stat st;
    char byte = 0;
    CHECK(pthread_create(&thread, NULL, make, NULL) == 0);
    while (stat("there", &st) != 0)
        CHECK(errno == ENOENT);
    int fd = open("there", O_RDONLY);
    CHECK(fd >= 0);
    while (pread(fd, &byte, 1, 0) == 0)
        ;
    CHECK(byte == 'x' && close(fd) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    say("the file came");
    return 0;
}
