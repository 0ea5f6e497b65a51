/* An open directory that is removed, which no image can hold: it is refused by name, and the server goes on.
 *
 * expect: same
 * image: refused: (deleted)
 */
#include "guest.h"
#include <sys/stat.h>

int main(void)
{
    struct stat st;
    CHECK(mkdir("gone", 0700) == 0);
    int fd = open("gone", O_RDONLY | O_DIRECTORY);
    CHECK(fd >= 0 && rmdir("gone") == 0 && fstat(fd, &st) == 0 && st.st_nlink == 0);
    for (int i = 0; i < 8; i++) {
        sleep_ms(10);
        say("still there %d", i);
    }
    return 0;
}
