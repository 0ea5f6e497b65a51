/* Named semaphores: made, found, counted, waited for by other processes and threads, closed and gone.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/wait.h>

static char name[64];

int main(void)
{
    int value, status;
    snprintf(name, sizeof name, "/skein-sem-%d", getpid());
    CHECK(sem_open(name, 0) == SEM_FAILED && errno == ENOENT);
    CHECK(sem_open("", O_CREAT, 0600, 1) == SEM_FAILED && errno == EINVAL);
    CHECK_ERRNO(sem_unlink(name), ENOENT);
    sem_t *tokens = sem_open(name, O_CREAT | O_EXCL, 0600, 2);
    CHECK(tokens != SEM_FAILED);
    CHECK(sem_open(name, O_CREAT | O_EXCL, 0600, 2) == SEM_FAILED && errno == EEXIST);
    CHECK(sem_open(name, O_CREAT, 0600, 7) == tokens);
    CHECK(sem_getvalue(tokens, &value) == 0 && value == 2);
    CHECK(sem_wait(tokens) == 0 && sem_trywait(tokens) == 0);
    CHECK_ERRNO(sem_trywait(tokens), EAGAIN);
    struct timespec limit = to_timespec(now_ns(CLOCK_REALTIME) + 10 * NS_PER_MS);
    CHECK_ERRNO(sem_timedwait(tokens, &limit), ETIMEDOUT);
    say("values");

    /* Turn about with a child that opens both itself. */
    char back_name[80];
    snprintf(back_name, sizeof back_name, "%s-back", name);
    sem_t *back = sem_open(back_name, O_CREAT, 0600, 0);
    CHECK(back != SEM_FAILED);
    pid_t child = fork();
    if (child == 0) {
        CHECK(sem_close(back) == 0);
        sem_t *again = sem_open(back_name, 0);
        CHECK(again != SEM_FAILED);
        for (int i = 0; i < 30; i++)
            CHECK(sem_wait(tokens) == 0 && sem_post(again) == 0);
        _exit(0);
    }
    for (int i = 0; i < 30; i++)
        CHECK(sem_post(tokens) == 0 && sem_wait(back) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    say("two processes");

    /* A name is gone at once, the semaphore when nobody has it open. */
    CHECK(sem_unlink(name) == 0 && sem_unlink(back_name) == 0);
    CHECK(sem_post(tokens) == 0 && sem_wait(tokens) == 0);
    sem_t *other = sem_open(name, O_CREAT | O_EXCL, 0600, 5);
    CHECK(other != SEM_FAILED && other != tokens);
    CHECK(sem_getvalue(other, &value) == 0 && value == 5 && sem_getvalue(tokens, &value) == 0 && value == 0);
    /* Opened twice, closed twice. */
    CHECK(sem_close(tokens) == 0 && sem_close(tokens) == 0 && sem_close(other) == 0 && sem_close(back) == 0);
    CHECK_ERRNO(sem_close(tokens), EINVAL);
    CHECK(sem_unlink(name) == 0);
    say("done");
    return 0;
}
