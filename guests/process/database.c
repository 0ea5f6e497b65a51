/* What database servers are made of: a first process that gives up root's rights, workers with titles over their arguments, a System V segment and an anonymous one with
 * semaphores, a segment below /dev/shm, locks on pages of a file, removed temporary files, threads, and an archiver that is another program.
 *
 * expect: same
 */
#include "guest.h"
#include <grp.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define WORKERS 3
#define ROUNDS 4

extern char **environ;

struct shared {
    sem_t turn[WORKERS], done;
    long sum;
};

static struct shared *shared;
static char *interlock;

/* As servers do that show their state: over all arguments and the environment. */
static void title(char **argv, const char *text)
{
    char *end = argv[0];
    for (char **at = argv; *at; at++)
        end = *at + strlen(*at) + 1;
    for (char **at = environ; *at && *at == end; at++)
        end = *at + strlen(*at) + 1;
    static char *none[] = {NULL};
    environ = none;
    memset(argv[0], 0, (size_t)(end - argv[0]));
    strncpy(argv[0], text, (size_t)(end - argv[0]) - 1);
}

static void *writes(void *arg)
{
    int fd = (int)(intptr_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        sleep_ms(3);
        write_all(fd, "log ", 4);
    }
    return NULL;
}

static void work(int n, char **argv, int data)
{
    char text[32], path[32], got[64] = {0};
    snprintf(text, sizeof text, "database: worker %d", n);
    title(argv, text);
    CHECK(prctl(PR_SET_NAME, text + 10) == 0 && prctl(PR_SET_PDEATHSIG, SIGTERM) == 0);
    snprintf(path, sizeof path, "sort-%d", n);
    int sort = open(path, O_RDWR | O_CREAT | O_EXCL, 0600), log = open("log", O_WRONLY | O_APPEND);
    CHECK(sort >= 0 && log >= 0 && unlink(path) == 0);
    int segment = shm_open("/database", O_RDWR, 0);
    CHECK(segment >= 0);
    int *rows = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 0);
    CHECK(rows != MAP_FAILED && close(segment) == 0);
    struct flock page = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 100 * n, .l_len = 100};
    CHECK(fcntl(data, F_SETLK, &page) == 0);
    pthread_t thread = spawn(writes, (void *)(intptr_t)log);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(sem_wait(&shared->turn[n]) == 0);
        snprintf(text, sizeof text, "%d.%d ", n, round);
        write_all(sort, text, 4);
        rows[n]++;
        rows[1024 + n] += round;
        shared->sum += n;
        CHECK(strcmp(interlock, "held") == 0 && sem_post(&shared->done) == 0);
    }
    join(thread);
    CHECK(pread(sort, got, sizeof got - 1, 0) == 4 * ROUNDS);
    int cmdline = open("/proc/self/cmdline", O_RDONLY);
    char own[128] = {0};
    CHECK(cmdline >= 0 && read(cmdline, own, sizeof own - 1) > 0 && close(cmdline) == 0);
    note("%s as %d: %s", own, getuid(), got);
    page.l_start = 100 * ((n + 1) % WORKERS);
    CHECK_ERRNO(fcntl(data, F_SETLK, &page), EAGAIN);
    fflush(stdout);
    CHECK(sem_post(&shared->done) == 0);
    sleep_ms(40);
    _exit(n);
}

int main(int argc, char **argv)
{
    CHECK(argc > 0);
    struct rlimit files;
    CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = 1200;
    CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0 && chmod(".", 0777) == 0);
    if (getuid() == 0)
        CHECK(setgroups(1, (gid_t[]){44}) == 0 && setgid(44) == 0 && setuid(44) == 0);
    umask(077);
    int pid_file = open("pid", O_RDWR | O_CREAT, 0600), data = open("data", O_RDWR | O_CREAT, 0600);
    CHECK(pid_file >= 0 && flock(pid_file, LOCK_EX | LOCK_NB) == 0 && data >= 0 && dup2(data, 1100) == 1100);
    CHECK(close(open("log", O_CREAT | O_WRONLY, 0600)) == 0);
    shared = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int id = shmget(5432, 56, IPC_CREAT | IPC_EXCL | 0600);
    CHECK(shared != MAP_FAILED && id >= 0 && (interlock = shmat(id, NULL, 0)) != (char *)-1);
    strcpy(interlock, "held");
    CHECK(sem_init(&shared->done, 1, 0) == 0);
    int segment = shm_open("/database", O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(segment >= 0 && ftruncate(segment, 8192) == 0);
    int *rows = mmap(NULL, 8192, PROT_READ, MAP_SHARED, segment, 0);
    CHECK(rows != MAP_FAILED && close(segment) == 0);

    FILE *archiver = popen("while read line; do echo archived $line; done; exit 5", "w");
    CHECK(archiver);
    for (int n = 0; n < WORKERS; n++) {
        CHECK(sem_init(&shared->turn[n], 1, 0) == 0);
        if (fork() == 0)
            work(n, argv, data);
    }
    for (int round = 0; round < ROUNDS; round++) {
        for (int n = 0; n < WORKERS; n++) {
            sleep_ms(2);
            CHECK(sem_post(&shared->turn[n]) == 0 && sem_wait(&shared->done) == 0);
        }
        fprintf(archiver, "segment %d\n", round);
        fflush(archiver);
    }
    for (int n = 0; n < WORKERS; n++)
        CHECK(sem_wait(&shared->done) == 0);
    CHECK(shm_unlink("/database") == 0);
    struct shmid_ds about;
    CHECK(shmctl(id, IPC_STAT, &about) == 0 && about.shm_nattch == 1 + WORKERS);
    int status, sum = 0;
    for (int n = 0; n < WORKERS; n++) {
        CHECK(wait(&status) > 0 && WIFEXITED(status));
        sum += WEXITSTATUS(status);
    }
    CHECK(sum == 3 && shared->sum == 3 * ROUNDS && rows[2] == ROUNDS && rows[1026] == 6);
    status = pclose(archiver);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    CHECK(shmctl(id, IPC_STAT, &about) == 0 && about.shm_nattch == 1 && shmctl(id, IPC_RMID, NULL) == 0);
    struct stat st;
    CHECK(stat("log", &st) == 0 && st.st_size == 4 * ROUNDS * WORKERS);
    int other = open("pid", O_RDWR);
    CHECK_ERRNO(flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
    say("the database is shut down");
    return 0;
}
