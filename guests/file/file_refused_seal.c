/* An open memory file that is sealed against future writes, which no image can hold: it is refused by name, and the server goes on.
 *
 * expect: same
 * image: refused: sealed against future writes
 */
#include "guest.h"
#include <sys/mman.h>

int main(void)
{
    int fd = memfd_create("sealed", MFD_ALLOW_SEALING);
    CHECK(fd >= 0 && ftruncate(fd, 4096) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0);
    for (int i = 0; i < 8; i++) {
        sleep_ms(10);
        say("still there %d", i);
    }
    return 0;
}
