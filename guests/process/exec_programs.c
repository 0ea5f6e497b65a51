/* Other programs: a shell, a script, a missing one, a file that is no program; exec in the first process itself at the end.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/stat.h>
#include <sys/wait.h>

static int run(char *const args[])
{
    int status;
    fflush(stdout);
    pid_t pid = vfork();
    CHECK(pid >= 0);
    if (pid == 0) {
        execvp(args[0], args);
        _exit(errno == ENOENT ? 101 : errno == EACCES ? 102 : errno == ENOEXEC ? 103 : 104);
    }
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void file(const char *path, const char *text, int mode)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0700);
    CHECK(fd >= 0);
    write_all(fd, text, strlen(text));
    CHECK(fchmod(fd, (mode_t)mode) == 0 && close(fd) == 0);
}

int main(void)
{
    char path[64], script[80], plain[80], dull[80];
    snprintf(path, sizeof path, "./exec_programs.XXXXXX");
    CHECK(mkdtemp(path) != NULL);
    snprintf(script, sizeof script, "%s/script", path);
    snprintf(plain, sizeof plain, "%s/plain", path);
    snprintf(dull, sizeof dull, "%s/dull", path);
    file(script, "#! /bin/sh -e\necho script $1 of $#\nexit 6\n", 0755);
    file(plain, "echo no first line: $1\nexit 4\n", 0755);
    file(dull, "\x7f" "ELF nothing", 0644);

    say("shell %d", run((char *[]){"sh", "-c", "echo from a shell; (echo from a subshell; exit 3); exit $(($? + 40))", NULL}));
    say("script %d", run((char *[]){script, "one", "two", NULL}));
    say("without a first line %d", run((char *[]){plain, "x", NULL}));
    say("missing %d", run((char *[]){"/nowhere/program", NULL}));
    say("not executable %d", run((char *[]){dull, NULL}));
    say("pipeline %d", run((char *[]){"sh", "-c", "printf 'b\\na\\nc\\n' | sort | tr a-z A-Z | head -n 2", NULL}));
    say("background %d", run((char *[]){"sh", "-c", "(sleep 0.01; exit 9) & wait $!; echo waited $?", NULL}));
    CHECK(unlink(script) == 0 && unlink(plain) == 0 && unlink(dull) == 0 && rmdir(path) == 0);
    fflush(stdout);
    execl("/bin/echo", "echo", "the first process is another program", (char *)NULL);
    return 1;
}
