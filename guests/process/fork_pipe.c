/* A forked child writes to its parent through a pipe and a socket pair, after closing the parent's ends.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/wait.h>

static void in_child(int pipe_out, int socket_out)
{
    CHECK(write(pipe_out, "by pipe", 7) == 7);
    CHECK(write(socket_out, "by socket", 9) == 9);
    _exit(7);
}

int main(void)
{
    int p[2], s[2], status;
    char buffer[16] = {0};
    CHECK(pipe(p) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(close(p[0]) == 0 && close(s[0]) == 0);
        in_child(p[1], s[1]);
    }
    CHECK(close(p[1]) == 0 && close(s[1]) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    say("exited %d with %d", WIFEXITED(status), WEXITSTATUS(status));
    CHECK(read(p[0], buffer, sizeof buffer) == 7 && memcmp(buffer, "by pipe", 7) == 0);
    CHECK(read(p[0], buffer, sizeof buffer) == 0);
    CHECK(read(s[0], buffer, sizeof buffer) == 9 && memcmp(buffer, "by socket", 9) == 0);
    CHECK(read(s[0], buffer, sizeof buffer) == 0);
    say("got both, then the end");
    return 0;
}
