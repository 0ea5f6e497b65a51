/* What a process has told the kernel, and the kernel tells it: the exact break, barriers that it registered, that its capabilities survive another user, huge pages, the base of GS. Also in a
 * replica that continues from an image. What newer kernels have beside that is answered as by an older one.
 *
 * expect: same
 * refused: file_setattr | file_getattr | get_robust_list | F_SETOWN | F_SETSIG
 */
#include "guest.h"
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { STEPS = 6, PRIVATE = 8, REGISTER_PRIVATE = 16, CORES = 32, REGISTER_CORES = 64, FILE_GETATTR = 468, FILE_SETATTR = 469 };

static long barrier(int command)
{
    long result = syscall(SYS_membarrier, command, 0, 0);
    return result < 0 ? -errno : result;
}

static unsigned long gs(void)
{
    unsigned long base;
    __asm__ volatile("rdgsbase %0" : "=r"(base));
    return base;
}

static long brk_within(void)
{
    return syscall(SYS_brk, 0) & 4095;
}

static void look(const char *who)
{
    note("%s: break %ld, barriers %ld %ld, keeps %d, huge %d, gs %lx", who, brk_within(), barrier(PRIVATE), barrier(CORES), prctl(PR_GET_KEEPCAPS),
         prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), gs());
}

static void *waits(void *arg)
{
    for (int step = 0; step < STEPS; step++) {
        look("thread");
        sleep_ms(5);
    }
    return arg;
}

/* A result, or the error below zero. */
static long answer(long result)
{
    return result < 0 ? -errno : result;
}

static void new_in_linux(void)
{
    char words[64] = {0};
    int file = open("file", O_RDWR | O_CREAT, 0600);
    unsigned long hint = 2;
    CHECK(file >= 0);
    long answers[] = {
        answer(fcntl(file, F_SETOWN, getpid())),
        answer(fcntl(file, F_SETSIG, SIGUSR1)),
        answer(fcntl(file, F_SET_RW_HINT, &hint)),
        answer(fcntl(file, F_GET_RW_HINT, &hint)),
        answer(prctl(PR_SET_THP_DISABLE, 1, 2, 0, 0)),
        answer(syscall(FILE_GETATTR, AT_FDCWD, "file", words, 24, 0)),
        answer(syscall(FILE_SETATTR, AT_FDCWD, "file", words, 24, 0)),
    };
    void *head = NULL;
    size_t len = 0;
    long list = answer(syscall(SYS_get_robust_list, 0, &head, &len));
    note("list %ld, owner %d, signal %d", list, fcntl(file, F_GETOWN), fcntl(file, F_GETSIG));
    /* Not natively. */
    if (list < 0) {
        for (int at = 0; at < 5; at++)
            CHECK(answers[at] == -EINVAL);
        CHECK(list == -ENOSYS && answers[5] == -ENOSYS && answers[6] == -ENOSYS);
        CHECK(fcntl(file, F_GETOWN) == 0 && fcntl(file, F_GETSIG) == 0);
    }
    CHECK(syscall(SYS_set_robust_list, &words, 24) == 0);
    CHECK_ERRNO(syscall(SYS_set_robust_list, &words, 25), EINVAL);
    CHECK(close(file) == 0);
}

int main(void)
{
    new_in_linux();
    /* As a user without rights. */
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2];
    memset(none, 0, sizeof none);
    CHECK(syscall(SYS_capset, &head, none) == 0 && prctl(PR_SET_KEEPCAPS, 1) == 0);
    CHECK(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0);
    CHECK(barrier(0) > 0 && barrier(PRIVATE) == -EPERM && barrier(REGISTER_PRIVATE) == 0 && barrier(PRIVATE) == 0 && barrier(CORES) == -EPERM);
    CHECK(barrier(3) == -EINVAL && syscall(SYS_membarrier, REGISTER_PRIVATE, 8, 0) == -1);
    __asm__ volatile("wrgsbase %0" : : "r"(0x12345UL));
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        /* It has these from its parent. */
        CHECK(barrier(PRIVATE) == 0 && barrier(CORES) == -EPERM && barrier(REGISTER_CORES) == 0 && prctl(PR_SET_KEEPCAPS, 0) == 0);
    }
    pthread_t thread = spawn(waits, NULL);
    /* When nobody asks for memory any more. */
    int within = pid ? 1234 : 11;
    CHECK(brk((char *)(((unsigned long)sbrk(0) + 8191) & ~4095UL) + within) == 0 && brk_within() == within);
    for (int step = 0; step < STEPS; step++) {
        look(pid ? "parent" : "child");
        sleep_ms(5);
    }
    join(thread);
    if (pid == 0)
        _exit(0);
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    say("ended");
    return 0;
}
