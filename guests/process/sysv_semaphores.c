/* System V semaphores: values, several operations at once, the order of waiters, time limits, removal, undoing at a process's end.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/wait.h>

union argument {
    int value;
    struct semid_ds *about;
    unsigned short *all;
};

static int set;

static int change(int semaphore, int by, int flags)
{
    struct sembuf op = {.sem_num = (unsigned short)semaphore, .sem_op = (short)by, .sem_flg = (short)flags};
    return semop(set, &op, 1);
}

static int value(int semaphore)
{
    return semctl(set, semaphore, GETVAL);
}

static void *take_two(void *arg)
{
    (void)arg;
    struct sembuf ops[2] = {{0, -1, 0}, {1, -1, 0}};
    CHECK(semop(set, ops, 2) == 0);
    return NULL;
}

static void *wait_for_zero(void *arg)
{
    (void)arg;
    CHECK(change(2, 0, 0) == 0);
    return NULL;
}

static void *removed(void *arg)
{
    (void)arg;
    CHECK_ERRNO(change(0, -1, 0), EIDRM);
    return NULL;
}

static void nothing(int signo)
{
    (void)signo;
}

static void until(int semaphore, int command, int count)
{
    while (semctl(set, semaphore, command) != count)
        sched_yield();
}

int main(void)
{
    unsigned short all[3];
    struct semid_ds about;
    int status;
    key_t key = 0x5e000000 + getpid();
    CHECK_ERRNO(semget(key, 3, 0600), ENOENT);
    CHECK_ERRNO(semget(key, 0, IPC_CREAT | 0600), EINVAL);
    set = semget(key, 3, IPC_CREAT | 0640);
    CHECK(set >= 0 && semget(key, 2, 0600) == set);
    CHECK_ERRNO(semget(key, 4, 0600), EINVAL);
    CHECK_ERRNO(semget(key, 3, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
    CHECK(semctl(set, 0, IPC_STAT, (union argument){.about = &about}) == 0);
    CHECK(about.sem_nsems == 3 && about.sem_perm.__key == key && (about.sem_perm.mode & 0777) == 0640);
    CHECK(about.sem_otime == 0 && about.sem_ctime > 0 && about.sem_perm.cuid == geteuid());

    CHECK(semctl(set, 0, GETALL, (union argument){.all = all}) == 0 && all[0] + all[1] + all[2] == 0);
    all[0] = 2, all[1] = 5, all[2] = 1;
    CHECK(semctl(set, 0, SETALL, (union argument){.all = all}) == 0);
    CHECK(value(0) == 2 && value(1) == 5 && semctl(set, 0, GETPID) == getpid());
    CHECK(semctl(set, 1, SETVAL, (union argument){.value = 0}) == 0 && value(1) == 0);
    CHECK_ERRNO(semctl(set, 1, SETVAL, (union argument){.value = 40000}), ERANGE);
    CHECK_ERRNO(semctl(set, 3, GETVAL), EINVAL);
    CHECK_ERRNO(change(3, 1, 0), EFBIG);
    CHECK_ERRNO(semop(set, NULL, 0), EINVAL);
    CHECK_ERRNO(change(1, -1, IPC_NOWAIT), EAGAIN);
    CHECK_ERRNO(change(0, 32767, 0), ERANGE);
    /* All or nothing. */
    struct sembuf both[2] = {{0, -2, 0}, {1, -1, IPC_NOWAIT}};
    CHECK_ERRNO(semop(set, both, 2), EAGAIN);
    CHECK(value(0) == 2);
    struct sembuf twice[3] = {{0, -2, 0}, {0, 0, 0}, {0, 1, 0}};
    CHECK(semop(set, twice, 3) == 0 && value(0) == 1);
    say("values");

    /* Waits: for two at once, for zero. */
    pthread_t two = spawn(take_two, NULL), zero = spawn(wait_for_zero, NULL);
    until(1, GETNCNT, 1);
    until(2, GETZCNT, 1);
    CHECK(semctl(set, 0, GETNCNT) == 0 && value(0) == 1);
    CHECK(change(1, 1, 0) == 0);
    join(two);
    CHECK(value(0) == 0 && value(1) == 0);
    CHECK(change(2, -1, 0) == 0);
    join(zero);
    struct timespec limit = to_timespec(20 * NS_PER_MS);
    struct sembuf down = {0, -1, 0};
    CHECK_ERRNO(semtimedop(set, &down, 1, &limit), EAGAIN);
    limit.tv_nsec = -1;
    CHECK_ERRNO(semtimedop(set, &down, 1, &limit), EINVAL);
    struct sigaction action = {.sa_handler = nothing, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    alarm(1);
    CHECK_ERRNO(change(0, -1, 0), EINTR);
    CHECK(semctl(set, 0, GETNCNT) == 0);
    say("waits");

    /* Two processes in turn. */
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 50; i++)
            CHECK(change(0, -1, 0) == 0 && change(1, 1, 0) == 0);
        _exit(0);
    }
    for (int i = 0; i < 50; i++)
        CHECK(change(0, 1, 0) == 0 && change(1, -1, 0) == 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(value(0) == 0 && value(1) == 0);
    say("two processes");

    /* A process that ends gives back its count, and waiters for it go on. */
    CHECK(semctl(set, 0, SETVAL, (union argument){.value = 1}) == 0);
    for (int by_signal = 0; by_signal < 2; by_signal++) {
        int told[2];
        char byte;
        CHECK(pipe(told) == 0);
        child = fork();
        if (child == 0) {
            CHECK(change(0, -1, SEM_UNDO) == 0 && change(2, 3, SEM_UNDO) == 0 && change(2, -1, SEM_UNDO) == 0);
            CHECK(write(told[1], "x", 1) == 1);
            if (by_signal)
                pause();
            _exit(0);
        }
        CHECK(read(told[0], &byte, 1) == 1);
        if (by_signal) {
            CHECK(value(2) == 2 && kill(child, SIGKILL) == 0);
        }
        CHECK(change(0, -1, 0) == 0);
        CHECK(semctl(set, 0, GETPID) == getpid() && value(2) == 0);
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(change(0, 1, 0) == 0);
    }
    /* A waiter that is killed is not waited for. */
    child = fork();
    if (child == 0) {
        change(1, -1, SEM_UNDO);
        _exit(1);
    }
    until(1, GETNCNT, 1);
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(semctl(set, 1, GETNCNT) == 0);
    CHECK(change(1, 1, 0) == 0 && value(1) == 1);
    say("undone");

    CHECK(change(0, -1, 0) == 0);
    two = spawn(removed, NULL);
    until(0, GETNCNT, 1);
    CHECK(semctl(set, 0, IPC_RMID) == 0);
    join(two);
    CHECK_ERRNO(change(0, 1, 0), EINVAL);
    CHECK_ERRNO(semget(key, 3, 0600), ENOENT);
    say("done");
    return 0;
}
