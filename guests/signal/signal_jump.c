/* siglongjmp out of handlers restores the mask that sigsetjmp saved; longjmp without a saved one does not. Alternate stacks.
 *
 * expect: same
 */
#include "guest.h"
#include <setjmp.h>
#include <sys/mman.h>

static sigjmp_buf back;
static char *stack;
static int on_stack, ends[2];

static void jump(int number)
{
    char here;
    on_stack = &here >= stack && &here < stack + 65536;
    siglongjmp(back, number);
}

static int blocked(int number)
{
    sigset_t now;
    CHECK(sigprocmask(SIG_SETMASK, NULL, &now) == 0);
    return sigismember(&now, number);
}

static void set(int number, int flags)
{
    struct sigaction action = {.sa_handler = jump, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGHUP);
    CHECK(sigaction(number, &action, NULL) == 0);
}

static void *poke(void *arg)
{
    sleep_ms(10);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    return arg;
}

int main(void)
{
    volatile int rounds = 0;
    char byte;
    sigset_t only;

    stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t alternate = {.ss_sp = stack, .ss_size = 65536}, was;
    CHECK(sigaltstack(&alternate, &was) == 0);
    CHECK(was.ss_flags == SS_DISABLE);
    CHECK(sigaltstack(NULL, &was) == 0);
    CHECK(was.ss_sp == stack && was.ss_size == 65536 && was.ss_flags == 0);
    alternate.ss_size = 1000;
    CHECK_ERRNO(sigaltstack(&alternate, NULL), ENOMEM);

    set(SIGUSR1, 0);
    set(SIGUSR2, SA_ONSTACK);
    while (rounds < 5) {
        if (sigsetjmp(back, 1) == 0) {
            CHECK(raise(SIGUSR1) == 0);
            CHECK(0);
        }
        CHECK(!blocked(SIGUSR1) && !blocked(SIGHUP) && !on_stack);
        rounds++;
    }
    if (sigsetjmp(back, 1) == 0)
        raise(SIGUSR2);
    CHECK(on_stack && !blocked(SIGUSR2));
    say("jumped");

    if (sigsetjmp(back, 0) == 0)
        raise(SIGUSR1);
    CHECK(blocked(SIGUSR1) && blocked(SIGHUP));
    sigemptyset(&only);
    CHECK(sigprocmask(SIG_SETMASK, &only, NULL) == 0);
    say("kept");

    /* The mask that comes back lets a pending signal in. */
    jmp_buf other;
    sigaddset(&only, SIGUSR2);
    if (setjmp(other) == 0)
        longjmp(other, 3);
    CHECK(!blocked(SIGUSR2));

    /* Out of blocking calls, again and again: nothing is leaked that would stop the pipe from ending. */
    CHECK(pipe(ends) == 0);
    for (rounds = 0; rounds < 3; rounds++) {
        pthread_t t = spawn(poke, NULL);
        if (sigsetjmp(back, 1) == 0) {
            read(ends[0], &byte, 1);
            CHECK(0);
        }
        join(t);
    }
    CHECK(close(ends[1]) == 0);
    CHECK(read(ends[0], &byte, 1) == 0);
    say("left read");
    CHECK(close(ends[0]) == 0);
    return 0;
}
