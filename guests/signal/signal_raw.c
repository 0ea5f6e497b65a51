/* The same by system calls, as programs without libc's functions make them.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/syscall.h>

static volatile int seen;

static void handler(int number)
{
    seen = number;
}

int main(void)
{
    uint64_t one = 1ull << (SIGUSR1 - 1), old = 7, pending = 0;
    siginfo_t info;
    struct timespec none = {0, 0};
    signal(SIGUSR1, handler);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, &one, &old, 8) == 0);
    CHECK(old == 0);
    CHECK(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1) == 0);
    CHECK(seen == 0);
    CHECK(syscall(SYS_rt_sigpending, &pending, 8) == 0);
    CHECK(pending == one);
    CHECK(syscall(SYS_rt_sigtimedwait, &one, &info, &none, 8) == SIGUSR1);
    CHECK(info.si_code == SI_TKILL && info.si_pid == getpid());
    CHECK(syscall(SYS_tkill, syscall(SYS_gettid), SIGUSR1) == 0);
    old = 0;
    CHECK_ERRNO(syscall(SYS_rt_sigsuspend, &old, 8), EINTR);
    CHECK(seen == SIGUSR1);
    CHECK(syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &one, NULL, 8) == 0);
    seen = 0;
    CHECK(syscall(SYS_kill, getpid(), SIGUSR1) == 0);
    CHECK(seen == SIGUSR1);
    CHECK(syscall(SYS_alarm, 0) == 0);
    say("done");
    return 0;
}
