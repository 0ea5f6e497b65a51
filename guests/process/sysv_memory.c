/* System V shared memory: keys, sizes, permissions, attaching in several processes, detaching, removal while attached, an id without a mapping.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>

#define KEY 0x5ce1
#define BYTES 10000

static struct shmid_ds about(int id)
{
    struct shmid_ds ds;
    CHECK(shmctl(id, IPC_STAT, &ds) == 0);
    return ds;
}

static void *wait_for(void *arg)
{
    sem_t *sem = arg;
    CHECK(sem_wait(sem) == 0);
    return NULL;
}

int main(void)
{
    int status;
    CHECK_ERRNO(shmget(KEY, BYTES, 0600), ENOENT);
    CHECK_ERRNO(shmget(IPC_PRIVATE, 0, 0600), EINVAL);
    int id = shmget(KEY, BYTES, IPC_CREAT | IPC_EXCL | 0640), loose = shmget(IPC_PRIVATE, 4096, 0600);
    CHECK(id >= 0 && loose >= 0 && id != loose && shmget(KEY, 0, 0) == id && shmget(KEY, BYTES, IPC_CREAT | 0600) == id);
    CHECK_ERRNO(shmget(KEY, BYTES, IPC_CREAT | IPC_EXCL | 0600), EEXIST);
    CHECK_ERRNO(shmget(KEY, 2 * BYTES, 0600), EINVAL);
    CHECK_ERRNO(shmat(id + 1000000, NULL, 0), EINVAL);

    char *at = shmat(id, NULL, 0);
    CHECK(at != (char *)-1 && about(id).shm_nattch == 1 && about(id).shm_segsz == BYTES);
    CHECK(about(id).shm_perm.__key == KEY && (about(id).shm_perm.mode & 0777) == 0640);
    CHECK(about(id).shm_cpid == getpid() && about(id).shm_lpid == getpid() && about(id).shm_dtime == 0);
    note("attached at %ld", (long)about(id).shm_atime);
    CHECK_ERRNO(shmat(id, at, 0), EINVAL);
    CHECK_ERRNO(shmat(id, at + 1, 0), EINVAL);
    sem_t *sem = (sem_t *)(at + 4096);
    CHECK(sem_init(sem, 1, 0) == 0);
    strcpy(at, "before");
    char *other = shmat(loose, NULL, 0);
    CHECK(other != (char *)-1);
    strcpy(other, "kept by its id");
    CHECK(shmdt(other) == 0 && about(loose).shm_nattch == 0);
    CHECK_ERRNO(shmdt(other), EINVAL);

    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(about(id).shm_nattch == 2);
        char *reads = shmat(id, NULL, SHM_RDONLY);
        CHECK(reads != (char *)-1 && about(id).shm_nattch == 3 && strcmp(reads, "before") == 0);
        sleep_ms(20);
        strcpy(at, "from the child");
        CHECK(strcmp(reads, "from the child") == 0 && sem_post(sem) == 0);
        CHECK((other = shmat(loose, NULL, 0)) != (char *)-1 && strcmp(other, "kept by its id") == 0);
        sleep_ms(20);
        CHECK(shmdt(at) == 0 && about(id).shm_nattch == 2 && strcmp(reads, "from the child") == 0);
        fflush(stdout);
        _exit(0);
    }
    pthread_t thread = spawn(wait_for, sem);
    sleep_ms(10);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    CHECK_ERRNO(shmget(KEY, BYTES, 0600), ENOENT);
    CHECK(about(id).shm_perm.mode & SHM_DEST);
    join(thread);
    CHECK(strcmp(at, "from the child") == 0);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(about(id).shm_nattch == 1 && about(id).shm_lpid == pid);
    sleep_ms(5);
    CHECK(shmdt(at) == 0);
    CHECK_ERRNO(shmat(id, NULL, 0), EINVAL);
    CHECK((other = shmat(loose, NULL, 0)) != (char *)-1 && strcmp(other, "kept by its id") == 0);
    struct shmid_ds ds = about(loose);
    ds.shm_perm.mode = 0400;
    CHECK(shmctl(loose, IPC_SET, &ds) == 0 && (about(loose).shm_perm.mode & 0777) == 0400);
    CHECK(shmctl(loose, IPC_RMID, NULL) == 0 && strcmp(other, "kept by its id") == 0);
    struct shm_info info;
    CHECK(shmctl(0, SHM_INFO, (struct shmid_ds *)&info) >= 0 && info.used_ids == 1 && info.shm_tot == 1);
    say("done");
    return 0;
}
