/* A working directory that is removed, which no image can hold: it is refused by name, and the server goes on.
 *
 * expect: same
 * image: refused: a removed working directory
 */
#include "guest.h"
#include <sys/stat.h>

int main(void)
{
    char there[8];
    CHECK(mkdir("gone", 0700) == 0 && chdir("gone") == 0 && rmdir("../gone") == 0);
    CHECK_ERRNO(getcwd(there, sizeof there) == NULL ? -1 : 0, ENOENT);
    for (int i = 0; i < 8; i++) {
        sleep_ms(10);
        say("still there %d", i);
    }
    return 0;
}
