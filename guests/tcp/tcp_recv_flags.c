/* recv with MSG_PEEK, MSG_WAITALL, MSG_DONTWAIT and MSG_TRUNC.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>

static void *dribble(void *arg)
{
    int fd = *(int *)arg;
    for (int i = 0; i < 4; i++) {
        write_all(fd, "ab", 2);
        sleep_ms(5);
    }
    return NULL;
}

int main(void)
{
    int p[2];
    char buffer[32] = {0};
    tcp_pair(p);
    CHECK_ERRNO(recv(p[0], buffer, sizeof buffer, MSG_DONTWAIT), EAGAIN);
    CHECK_ERRNO(recv(p[0], buffer, sizeof buffer, MSG_DONTWAIT | MSG_PEEK), EAGAIN);
    write_all(p[1], "hello", 5);
    CHECK(recv(p[0], buffer, 2, MSG_PEEK) == 2 && memcmp(buffer, "he", 2) == 0);
    CHECK(recv(p[0], buffer, sizeof buffer, MSG_PEEK) == 5 && memcmp(buffer, "hello", 5) == 0);
    CHECK(recv(p[0], buffer, 3, 0) == 3 && memcmp(buffer, "hel", 3) == 0);
    CHECK(recv(p[0], buffer, sizeof buffer, MSG_PEEK | MSG_DONTWAIT) == 2 && memcmp(buffer, "lo", 2) == 0);
    say("MSG_PEEK leaves the data");
    CHECK(recv(p[0], NULL, 0, 0) == 0);
    CHECK(recv(p[0], NULL, 1, MSG_TRUNC) == 1);
    CHECK(recv(p[0], buffer, sizeof buffer, MSG_DONTWAIT) == 1 && buffer[0] == 'o');
    say("MSG_TRUNC discards");

    pthread_t writer = spawn(dribble, &p[1]);
    CHECK(recv(p[0], buffer, 8, MSG_WAITALL) == 8);
    say("MSG_WAITALL got %.8s", buffer);
    join(writer);

    write_all(p[1], "end", 3);
    CHECK(shutdown(p[1], SHUT_WR) == 0);
    CHECK(recv(p[0], buffer, sizeof buffer, MSG_WAITALL) == 3);
    CHECK(recv(p[0], buffer, sizeof buffer, MSG_WAITALL) == 0);
    CHECK(recv(p[0], buffer, sizeof buffer, MSG_PEEK) == 0);
    say("MSG_WAITALL ends at end of file");
    CHECK_ERRNO(recv(-1, buffer, 1, 0), EBADF);
    CHECK_ERRNO(recv(STDIN_FILENO, buffer, 1, 0), ENOTSOCK);
    return 0;
}
