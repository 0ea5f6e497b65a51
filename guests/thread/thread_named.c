/* Names of threads, however they get them: each thread has its own, those that it makes and forks begin with it, and /proc shows it.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/prctl.h>
#include <sys/wait.h>

static pid_t tids[4];

static void shown(pid_t tid, const char *name)
{
    char path[64], text[32] = {0};
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", tid);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0);
    ssize_t n = read(fd, text, sizeof text - 1);
    CHECK(n > 0 && text[n - 1] == '\n' && close(fd) == 0);
    text[n - 1] = 0;
    note("%s is shown as %s", name, text);
    CHECK(strcmp(text, name) == 0);
}

static void own(const char *name)
{
    char told[16] = "not written";
    CHECK(prctl(PR_GET_NAME, told) == 0 && strcmp(told, name) == 0);
    CHECK(pthread_getname_np(pthread_self(), told, sizeof told) == 0 && strcmp(told, name) == 0);
    shown(gettid(), name);
}

static void *inherits(void *arg)
{
    tids[3] = gettid();
    own("by itself");
    sleep_ms(40);
    own("by itself");
    return arg;
}

static void *by_itself(void *arg)
{
    tids[1] = gettid();
    CHECK(prctl(PR_SET_NAME, "by itself") == 0);
    own("by itself");
    CHECK_ERRNO(prctl(PR_SET_NAME, (char *)8), EFAULT);
    pthread_t thread = spawn(inherits, NULL);
    sleep_ms(10);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        own("by itself");
        sleep_ms(20);
        own("by itself");
        CHECK(prctl(PR_SET_NAME, "a child") == 0);
        own("a child");
        fflush(stdout);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    join(thread);
    own("by itself");
    return arg;
}

static void *by_another(void *arg)
{
    tids[2] = gettid();
    sleep_ms(20);
    own("by another");
    CHECK(pthread_setname_np(pthread_self(), "") == 0);
    own("");
    sleep_ms(20);
    own("");
    return arg;
}

int main(void)
{
    CHECK(prctl(PR_SET_NAME, "a name that is cut") == 0);
    own("a name that is ");
    pthread_t one = spawn(by_itself, NULL), other = spawn(by_another, NULL);
    CHECK(pthread_setname_np(other, "by another") == 0);
    sleep_ms(15);
    own("a name that is ");
    CHECK(pthread_setname_np(pthread_self(), "main") == 0);
    own("main");
    sleep_ms(15);
    own("main");
    shown(tids[1], "by itself");
    char name[16];
    CHECK(pthread_getname_np(one, name, sizeof name) == 0 && strcmp(name, "by itself") == 0);
    shown(tids[3], "by itself");
    join(one);
    join(other);
    own("main");
    say("all names are there");
    return 0;
}
