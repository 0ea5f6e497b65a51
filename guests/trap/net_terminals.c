/* Pseudo-terminals: refused by name, because the kernel would process their bytes.
 *
 * expect: same
 * refused: pseudo-terminal
 */
#include "guest.h"

int main(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    note("posix_openpt %d", master >= 0 ? 0 : errno);
    CHECK(master >= 0 || errno == ENXIO);
    say("asked");
    return 0;
}
