/* A removed file whose directory is removed, too, which no image can hold: it is refused by name, and the server goes on.
 *
 * expect: same
 * image: refused: whose directory is removed, too
 */
#include "guest.h"
#include <sys/stat.h>

int main(void)
{
    CHECK(mkdir("gone", 0700) == 0);
    int fd = open("gone/file", O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0 && unlink("gone/file") == 0 && rmdir("gone") == 0 && write(fd, "text", 4) == 4);
    for (int i = 0; i < 8; i++) {
        sleep_ms(10);
        say("still there %d", i);
    }
    return 0;
}
