/* Files of the kernel that wait in UNIX sockets while time passes: two descriptors of one open file, a removed file, one behind another.
 *
 * expect: same
 */
#include "unix.h"

int main(void)
{
    int s[2], fds[4], count, flags = 0;
    char buffer[8], text[8] = {0};
    CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, s) == 0);
    char path[] = "waits-XXXXXX";
    int file = mkstemp(path), same = dup(file), other = open(path, O_RDONLY);
    CHECK(file >= 0 && same >= 0 && other >= 0 && unlink(path) == 0);
    write_all(file, "waiting", 7);
    CHECK(send_fds(s[0], "1", 1, (int[]){file, other}, 2) == 1 && send_fds(s[0], "2", 1, &same, 1) == 1);
    CHECK(close(file) == 0 && close(other) == 0);
    sleep_ms(20);

    CHECK(lseek(same, 4, SEEK_SET) == 4);
    CHECK(receive_fds(s[1], buffer, sizeof buffer, fds, 4, &count, &flags) == 1 && count == 2 && buffer[0] == '1');
    CHECK(lseek(fds[0], 0, SEEK_CUR) == 4 && lseek(fds[1], 0, SEEK_CUR) == 0);
    CHECK(pread(fds[1], text, 7, 0) == 7 && strcmp(text, "waiting") == 0);
    sleep_ms(20);
    CHECK(close(same) == 0);
    flags = 0;
    CHECK(receive_fds(s[1], buffer, sizeof buffer, fds + 2, 2, &count, &flags) == 1 && count == 1 && buffer[0] == '2');
    CHECK(lseek(fds[2], 2, SEEK_CUR) == 6 && lseek(fds[0], 0, SEEK_CUR) == 6);
    say("all came");
    return 0;
}
