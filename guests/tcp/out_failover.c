/* The leader, which had the connections, dies: established ones are reset, those being made are refused, new ones work.
 *
 * expect: same
 * outside: played by the harness
 */
#include "outside.h"

static int lost;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *wait_for_answer(void *arg)
{
    int fd = *(int *)arg;
    char byte;
    CHECK_ERRNO(read(fd, &byte, 1), ECONNRESET);
    CHECK(pthread_mutex_lock(&lock) == 0);
    note("connection %d was lost as number %d", fd, ++lost);
    CHECK(pthread_mutex_unlock(&lock) == 0);
    return NULL;
}

int main(void)
{
    int fds[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        fds[i] = outside_connect(OUTSIDE_ECHO);
        threads[i] = spawn(wait_for_answer, &fds[i]);
    }
    int last = outside_connect(OUTSIDE_FAILOVER);
    write_all(last, "x", 1);
    char byte;
    CHECK_ERRNO(read(last, &byte, 1), ECONNRESET);
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    CHECK(lost == 3);
    say("all were reset");

    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_ERRNO(outside_start(fd, OUTSIDE_FAILOVER_EARLY), ECONNREFUSED);
    CHECK(outside_start(fd, OUTSIDE_ECHO) == 0);
    write_all(fd, "new", 3);
    expect_text(fd, "new");
    say("new ones work");
    return 0;
}
