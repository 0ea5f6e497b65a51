/* SIGSEGV, which the runtime handles first: the server's own handler gets faults and sent signals; sigaction answers the server's setting.
 *
 * expect: same
 */
#include "guest.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

static sigjmp_buf back;
static volatile int seen;

static void handler(int number, siginfo_t *info, void *context)
{
    (void)context;
    CHECK(number == SIGSEGV);
    seen++;
    if (info->si_code > 0)
        siglongjmp(back, 1);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, old;
    CHECK(sigaction(SIGSEGV, &action, &old) == 0);
    CHECK(old.sa_handler == SIG_DFL);
    CHECK(sigaction(SIGSEGV, NULL, &old) == 0);
    CHECK(old.sa_sigaction == handler);
    CHECK(raise(SIGSEGV) == 0);
    CHECK(seen == 1);
    say("sent");
    char *page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    if (sigsetjmp(back, 1) == 0)
        *(volatile char *)page = 1;
    CHECK(seen == 2);
    say("faulted");
    return 0;
}
