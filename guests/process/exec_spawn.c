/* posix_spawn with file actions and attributes, its errors; system; popen both ways; daemon.
 *
 * expect: same
 */
#include "guest.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static void actions(void)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int out[2], in[2], status;
    char buffer[128] = {0};
    pid_t pid;
    CHECK(pipe(out) == 0 && pipe(in) == 0);
    CHECK(posix_spawn_file_actions_init(&files) == 0 && posix_spawnattr_init(&attributes) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&files, in[0], 0) == 0);
    CHECK(posix_spawn_file_actions_adddup2(&files, out[1], 1) == 0);
    CHECK(posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0) == 0);
    CHECK(posix_spawn_file_actions_addclose(&files, in[1]) == 0);
    CHECK(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK) == 0);
    char *args[] = {"sh", "-c", "read line; echo got $line; echo lost >&2; exit 21", NULL};
    CHECK(posix_spawnp(&pid, "sh", &files, &attributes, args, environ) == 0);
    CHECK(getpgid(pid) == pid);
    CHECK(close(in[0]) == 0 && close(out[1]) == 0);
    CHECK(write(in[1], "this line\n", 10) == 10);
    size_t n = 0;
    ssize_t more;
    while ((more = read(out[0], buffer + n, sizeof buffer - n)) > 0)
        n += (size_t)more;
    CHECK(waitpid(pid, &status, 0) == pid);
    say("spawned said %.*s", (int)n - 1, buffer);
    say("and exited with %d", WEXITSTATUS(status));
    CHECK(posix_spawn(&pid, "/nowhere/program", NULL, NULL, args, environ) == ENOENT);
    CHECK(waitpid(-1, &status, 0) == -1 && errno == ECHILD);
    CHECK(posix_spawn_file_actions_adddup2(&files, 555, 1) == 0);
    CHECK(posix_spawn(&pid, "/bin/sh", &files, NULL, args, environ) == EBADF);
}

static void shells(void)
{
    char line[64];
    fflush(stdout);
    say("system %d", WEXITSTATUS(system("echo hi from system; exit 8")));
    CHECK(system(NULL) != 0);
    FILE *from = popen("echo first; echo second; exit 5", "r");
    CHECK(from != NULL);
    while (fgets(line, sizeof line, from))
        printf("read %s", line);
    say("pclose %d", WEXITSTATUS(pclose(from)));
    FILE *to = popen("tr a-z A-Z", "w");
    CHECK(to != NULL && fputs("through a pipe\n", to) >= 0);
    fflush(stdout);
    say("pclose %d", pclose(to));
}

int main(void)
{
    int up[2];
    actions();
    shells();
    /* daemon: its first process ends, a grandchild in a session of its own goes on. The waiting process reads until the end of a pipe that the
     * daemon has open: natively there is no other way to wait for it. */
    CHECK(pipe(up) == 0);
    pid_t before = getpid();
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child != 0) {
        char none;
        CHECK(close(up[1]) == 0 && waitpid(child, NULL, 0) == child);
        CHECK(read(up[0], &none, 1) == 0);
        say("the daemon has ended");
        return 0;
    }
    CHECK(daemon(1, 1) == 0);
    CHECK(getpid() != before && getsid(0) != before && getppid() == 1);
    say("the daemon goes on");
    fflush(stdout);
    return 0;
}
