/* What processes tell the kernel of themselves by files of /proc: who is killed first where memory is short, and what core files have.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/wait.h>

static int told(const char *name)
{
    char path[64], text[32] = {0};
    snprintf(path, sizeof path, "/proc/self/%s", name);
    int fd = open(path, O_RDONLY);
    if (fd < 0)
        return -1;
    CHECK(read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
    return strtol(text, NULL, name[0] == 'c' ? 16 : 10);
}

static void tell(const char *name, int number)
{
    char path[64], text[32];
    snprintf(path, sizeof path, "/proc/self/%s", name);
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0);
    write_all(fd, text, snprintf(text, sizeof text, "%d", number));
    CHECK(close(fd) == 0);
}

static void checks(int score, int filter)
{
    for (int n = 0; n < 4; n++) {
        CHECK(told("oom_score_adj") == score && told("coredump_filter") == filter);
        sleep_ms(10);
    }
}

int main(void)
{
    int status, score = told("oom_score_adj"), filter = told("coredump_filter");
    pid_t plain = fork();
    if (plain == 0) {
        checks(score, filter);
        _exit(0);
    }
    pid_t child = fork();
    if (child == 0) {
        tell("oom_score_adj", score + 2);
        if (filter >= 0)
            tell("coredump_filter", 1);
        checks(score + 2, filter < 0 ? filter : 1);
        _exit(0);
    }
    tell("oom_score_adj", score + 1);
    if (filter >= 0)
        tell("coredump_filter", 0x7f);
    checks(score + 1, filter < 0 ? filter : 0x7f);
    CHECK(waitpid(plain, &status, 0) == plain && status == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    say("all that was told is there");
    return 0;
}
