/* SCM_RIGHTS from one process to another: a pipe, a socket, a file of the kernel; SO_PEERCRED and a listener that children share.
 *
 * expect: same
 */
#include "unix.h"
#include <sys/wait.h>

static void child(int channel)
{
    int fds[4], count, flags = 0;
    char buffer[16];
    CHECK(receive_fds(channel, buffer, sizeof buffer, fds, 4, &count, &flags) == 2 && count == 3);
    write_all(fds[0], "from the child", 14);
    CHECK(pread(fds[1], buffer, 6, 0) == 6 && memcmp(buffer, "a file", 6) == 0);
    CHECK(lseek(fds[1], 2, SEEK_SET) == 2);
    int accepted = accept(fds[2], NULL, NULL);
    CHECK(accepted >= 0);
    struct ucred cred;
    socklen_t length = sizeof cred;
    CHECK(getsockopt(accepted, SOL_SOCKET, SO_PEERCRED, &cred, &length) == 0 && cred.pid == getppid());
    /* And back: one that the parent never had. */
    FILE *own = tmpfile();
    CHECK(own && fputs("the child's", own) >= 0 && fflush(own) == 0);
    CHECK(send_fds(channel, "own", 3, (int[]){fileno(own), accepted}, 2) == 3);
    _exit(7);
}

int main(void)
{
    int s[2], p[2], fds[4], count, flags = 0, status;
    char buffer[16], name[64];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, s) == 0 && pipe(p) == 0);
    snprintf(name, sizeof name, "@guest fork rights %d", (int)getpid());
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        close(s[0]);
        close(p[0]);
        close(p[1]);
        child(s[1]);
    }
    close(s[1]);
    FILE *file = tmpfile();
    CHECK(file && fputs("a file", file) >= 0 && fflush(file) == 0);
    int listener = unix_listen(SOCK_STREAM, name, 5);
    CHECK(send_fds(s[0], "go", 2, (int[]){p[1], fileno(file), listener}, 3) == 2);
    close(p[1]);
    expect_text(p[0], "from the child");
    int client = unix_connect(SOCK_STREAM, name);
    CHECK(receive_fds(s[0], buffer, sizeof buffer, fds, 4, &count, &flags) == 3 && count == 2);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(lseek(fileno(file), 0, SEEK_CUR) == 2);
    CHECK(pread(fds[0], buffer, 11, 0) == 11 && memcmp(buffer, "the child's", 11) == 0);
    write_all(fds[1], "accepted by the child", 21);
    expect_text(client, "accepted by the child");
    CHECK(read(p[0], buffer, 1) == 0);
    say("descriptors both ways, after the sender's end");
    return 0;
}
