/* System V message queues: by type, in order, full and empty, between processes, removed; the state of a segment of shared memory.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/shm.h>
#include <sys/wait.h>

struct message {
    long type;
    char text[8200];
};

static int queue;
static struct message message;

static int put(long type, const char *text, int flags)
{
    struct message m = {.type = type};
    strcpy(m.text, text);
    return msgsnd(queue, &m, strlen(text), flags);
}

static const char *get(long type, int flags)
{
    ssize_t length = msgrcv(queue, &message, sizeof message.text, type, flags);
    CHECK(length >= 0);
    message.text[length] = 0;
    return message.text;
}

static void *removed(void *arg)
{
    (void)arg;
    CHECK_ERRNO(msgrcv(queue, &message, 10, 0, 0), EIDRM);
    return NULL;
}

static void *drain(void *arg)
{
    (void)arg;
    CHECK(msgrcv(queue, &message, sizeof message.text, 0, 0) == 8192);
    return NULL;
}

int main(void)
{
    struct msqid_ds about;
    int status;
    key_t key = 0x5e000000 + getpid();
    CHECK_ERRNO(msgget(key, 0600), ENOENT);
    queue = msgget(key, IPC_CREAT | 0600);
    CHECK(queue >= 0 && msgget(key, 0600) == queue);
    CHECK_ERRNO(msgget(key, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
    CHECK_ERRNO(put(0, "x", 0), EINVAL);
    CHECK_ERRNO(msgrcv(queue, &message, 10, 0, IPC_NOWAIT), ENOMSG);

    CHECK(put(3, "three", 0) == 0 && put(1, "one", 0) == 0 && put(2, "two", 0) == 0 && put(1, "one again", 0) == 0);
    CHECK(msgctl(queue, IPC_STAT, &about) == 0);
    CHECK(about.msg_qnum == 4 && about.__msg_cbytes == 20 && about.msg_qbytes == 16384);
    CHECK(about.msg_lspid == getpid() && about.msg_lrpid == 0 && about.msg_stime > 0 && about.msg_rtime == 0);
    CHECK_ERRNO(msgrcv(queue, &message, 2, 1, 0), E2BIG);
    CHECK(strcmp(get(1, 0), "one") == 0 && message.type == 1);
    CHECK(strcmp(get(3, MSG_EXCEPT), "two") == 0);
    CHECK(strcmp(get(-2, 0), "one again") == 0 && message.type == 1);
    CHECK_ERRNO(msgrcv(queue, &message, 10, -2, IPC_NOWAIT), ENOMSG);
    CHECK(msgrcv(queue, &message, 3, 0, MSG_NOERROR) == 3 && memcmp(message.text, "thr", 3) == 0);
    CHECK(put(9, "", 0) == 0 && msgrcv(queue, &message, 0, 0, 0) == 0 && message.type == 9);
    say("by type and in order");

    /* Full. */
    struct message large = {.type = 1};
    CHECK_ERRNO(msgsnd(queue, &large, 8193, 0), EINVAL);
    CHECK(msgsnd(queue, &large, 8192, 0) == 0 && msgsnd(queue, &large, 8192, 0) == 0);
    CHECK_ERRNO(put(1, "x", IPC_NOWAIT), EAGAIN);
    pthread_t thread = spawn(drain, NULL);
    CHECK(put(1, "last", 0) == 0);
    join(thread);
    CHECK(msgctl(queue, IPC_STAT, &about) == 0 && about.msg_qnum == 2);
    about.msg_qbytes = 100;
    CHECK(msgctl(queue, IPC_SET, &about) == 0);
    CHECK_ERRNO(put(1, "x", IPC_NOWAIT), EAGAIN);
    about.msg_qbytes = 16384;
    CHECK(msgctl(queue, IPC_SET, &about) == 0);
    CHECK(msgrcv(queue, &message, 8192, 0, 0) == 8192 && strcmp(get(0, 0), "last") == 0);
    say("full");

    /* Requests and answers of three processes. */
    for (int i = 1; i <= 3; i++) {
        if (fork() == 0) {
            char text[20];
            snprintf(text, sizeof text, "%d", i);
            CHECK(put(100, text, 0) == 0);
            _exit(atoi(get(i, 0)));
        }
    }
    int sum = 0;
    for (int i = 0; i < 3; i++) {
        char text[20];
        int who = atoi(get(100, 0));
        snprintf(text, sizeof text, "%d", who * 10);
        CHECK(put(who, text, 0) == 0);
    }
    while (wait(&status) > 0)
        sum += WEXITSTATUS(status);
    say("answers: %d", sum);

    thread = spawn(removed, NULL);
    sleep_ms(500);
    CHECK(msgctl(queue, IPC_RMID, NULL) == 0);
    join(thread);
    CHECK_ERRNO(put(1, "x", 0), EINVAL);
    say("removed");

    struct shmid_ds segment;
    int shared = shmget(IPC_PRIVATE, 5000, IPC_CREAT | 0600);
    CHECK(shared >= 0);
    char *memory = shmat(shared, NULL, 0);
    CHECK(memory != (void *)-1);
    CHECK(shmctl(shared, IPC_STAT, &segment) == 0);
    CHECK(segment.shm_segsz == 5000 && segment.shm_nattch == 1 && segment.shm_cpid == getpid());
    CHECK(segment.shm_atime > 0 && segment.shm_dtime == 0 && segment.shm_ctime > 0);
    note("attached at %ld, made at %ld", (long)segment.shm_atime, (long)segment.shm_ctime);
    CHECK(shmctl(shared, IPC_RMID, NULL) == 0 && shmdt(memory) == 0);
    say("done");
    return 0;
}
