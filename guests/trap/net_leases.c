/* Leases and notices of directories would be signals from the kernel: refused by name. Also refused: watching files, and notices of messages
 * (mq_notify).
 *
 * expect: same
 * refused: F_SETLEASE | F_NOTIFY | inotify_add_watch | mq_notify
 */
#include "guest.h"
#include <mqueue.h>
#include <sys/inotify.h>

int main(void)
{
    int fd = open("leased", O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(fd >= 0);
    CHECK(fcntl(fd, F_GETLEASE) == F_UNLCK);
    note("lease %d", fcntl(fd, F_SETLEASE, F_WRLCK));
    int directory = open(".", O_RDONLY | O_DIRECTORY);
    note("notify %d", fcntl(directory, F_NOTIFY, DN_CREATE));
    int watch = inotify_init1(IN_CLOEXEC);
    CHECK(watch >= 0);
    note("inotify %d", inotify_add_watch(watch, ".", IN_CREATE) < 0 ? errno : 0);
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    note("mq_notify %d", mq_notify((mqd_t)fd, &event) != 0);
    CHECK(unlink("leased") == 0);
    say("asked");
    return 0;
}
