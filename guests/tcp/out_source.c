/* Another host sends more than the receive window holds, to a reader that is slow at first.
 *
 * expect: same
 * outside: played by the harness
 */
#include "outside.h"

int main(void)
{
    int fd = outside_connect(OUTSIDE_SOURCE), got = 0;
    char buffer[7000];
    for (;;) {
        if (got < 20000)
            sleep_ms(5);
        ssize_t n = read(fd, buffer, sizeof buffer);
        CHECK(n >= 0);
        if (n == 0)
            break;
        for (ssize_t i = 0; i < n; i++)
            CHECK((unsigned char)buffer[i] == (got + i) % 251);
        got += (int)n;
    }
    CHECK(got == OUTSIDE_SOURCE_BYTES);
    say("%d bytes", got);
    return 0;
}
