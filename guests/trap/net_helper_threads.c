/* Calls that libc does by helper threads of its own: refused by name, because such a thread would run beside the turn's holder.
 *
 * expect: same
 * refused: aio_read
 */
#include "guest.h"
#include <aio.h>
#include <dirent.h>

/* Kernel threads of this process. */
static int tasks(void)
{
    DIR *dir = opendir("/proc/self/task");
    CHECK(dir != NULL);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

int main(void)
{
    static char byte;
    struct aiocb request = {.aio_fildes = -1, .aio_buf = &byte, .aio_nbytes = 1};
    int queued = aio_read(&request);
    CHECK(queued == 0 || errno == ENOSYS || errno == EBADF);
    note("aio_read %s", queued == 0 ? "works" : "is refused");
    /* A refused call must not have left a thread behind. */
    if (queued != 0)
        CHECK(tasks() == 1);
    say("asked");
    return 0;
}
