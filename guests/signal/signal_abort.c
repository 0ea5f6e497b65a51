/* abort runs the handler of SIGABRT, which may jump out; assert and free's checks come the same way; a handler that returns does not stop it.
 *
 * expect: same
 */
#include "guest.h"
#include <setjmp.h>

static sigjmp_buf back;
static volatile int seen;

static void jump(int number)
{
    CHECK(number == SIGABRT);
    seen++;
    siglongjmp(back, 1);
}

static void last(int number)
{
    CHECK(number == SIGABRT);
    say("handled");
    fflush(stdout);
    _exit(0);
}

extern void __assert_fail(const char *text, const char *file, unsigned line, const char *function);

int main(void)
{
    fclose(stderr);
    signal(SIGABRT, jump);
    if (sigsetjmp(back, 1) == 0)
        abort();
    CHECK(seen == 1);
    if (sigsetjmp(back, 1) == 0)
        __assert_fail("no", "file", 1, "main");
    CHECK(seen == 2);
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGABRT);
    CHECK(sigprocmask(SIG_BLOCK, &one, NULL) == 0);
    if (sigsetjmp(back, 1) == 0)
        abort();
    CHECK(seen == 3);
    say("jumped %d", seen);
    signal(SIGABRT, last);
    abort();
}
