/* sendfile from a regular file to a connection: with and without an offset, past the end.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/sendfile.h>

int main(void)
{
    char path[] = "sent-XXXXXX";
    int file = mkstemp(path), p[2];
    CHECK(file >= 0);
    CHECK(unlink(path) == 0);
    char data[3000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)('a' + i % 26);
    write_all(file, data, sizeof data);
    tcp_pair(p);

    off_t offset = 1000;
    CHECK(sendfile(p[0], file, &offset, 500) == 500);
    CHECK(offset == 1500);
    CHECK(lseek(file, 0, SEEK_CUR) == sizeof data);
    char got[3000];
    read_exact(p[1], got, 500);
    CHECK(memcmp(got, data + 1000, 500) == 0);
    say("sendfile with offset: 500 bytes, offset moved");

    CHECK(lseek(file, 2900, SEEK_SET) == 2900);
    CHECK(sendfile(p[0], file, NULL, 4096) == 100);
    CHECK(lseek(file, 0, SEEK_CUR) == 3000);
    read_exact(p[1], got, 100);
    CHECK(memcmp(got, data + 2900, 100) == 0);
    CHECK(sendfile(p[0], file, NULL, 4096) == 0);
    say("sendfile to the end: 100 bytes, then 0");
    CHECK_ERRNO(sendfile(-1, file, NULL, 1), EBADF);
    return 0;
}
