/* Random sequences of calls about signals, one thread, nothing blocks: dispositions with each flag, masks, signals that are sent to the process, its group
 * and the thread, with values and without, pending ones, waits for them, descriptors of them, waits with a mask of their own, alternate stacks, and handlers
 * that send, change masks and stacks, and jump out. Linux and Skein answer alike: results, errors, and each handler's place, order, information, masks and stack.
 *
 * expect: same
 * sequences: 5000
 */
#include "sequence.h"
#include <setjmp.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>

enum kind { NONE, SIGNALS, EPOLL };
static const char *const names[] = {"none", "signals", "epoll"};

/* The deepest nesting of handlers, and the most signals that handlers of one sequence send. */
#define MOST_NESTED 6
#define MOST_SENT 40
/* Room for the frames of all signals that can be pending, with all registers of a large processor. */
#define STACK_SIZE (2 << 20)

static struct number {
    const char *name;
    int number;
    /* Its default action is to do nothing. */
    int harmless;
} numbers[] = {
    {"HUP", SIGHUP, 0}, {"FPE", SIGFPE, 0}, {"BUS", SIGBUS, 0}, {"USR1", SIGUSR1, 0},
    {"USR2", SIGUSR2, 0}, {"PIPE", SIGPIPE, 0}, {"ALRM", SIGALRM, 0}, {"TERM", SIGTERM, 0},
    {"CHLD", SIGCHLD, 1}, {"CONT", SIGCONT, 1}, {"TSTP", SIGTSTP, 0}, {"URG", SIGURG, 1},
    {"WINCH", SIGWINCH, 1}, {"RT0", 34, 0}, {"RT1", 35, 0}, {"RT30", 64, 0},
};
#define NUMBERS (int)(sizeof numbers / sizeof numbers[0])

static unsigned char stacks[2][STACK_SIZE] __attribute__((aligned(16)));
static int nested, sent;
/* How many handlers run on each. */
static int used[2];
/* Where handlers jump to. */
static sigjmp_buf back;

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif

static struct number *number_of(int number)
{
    for (int i = 0; i < NUMBERS; i++)
        if (numbers[i].number == number)
            return &numbers[i];
    CHECK(!"a known signal");
    return NULL;
}

/* Few numbers come often: signals are to meet. */
static struct number *drawn(void)
{
    return &numbers[below(2) ? below(NUMBERS) : 3 + below(2) * 10];
}

static unsigned long bits(const sigset_t *set)
{
    unsigned long some = 0;
    for (int i = 0; i < NUMBERS; i++)
        some |= (unsigned long)(sigismember(set, numbers[i].number) == 1) << i;
    return some;
}

static sigset_t draw_set(void)
{
    sigset_t set;
    sigemptyset(&set);
    if (below(8) == 0) {
        sigfillset(&set);
        return set;
    }
    for (int n = 1 + (int)below(4); n > 0; n--)
        sigaddset(&set, drawn()->number);
    return set;
}

static void mask(void)
{
    static const int hows[] = {SIG_BLOCK, SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK, 7};
    int how = ONE_OF(hows);
    sigset_t set = draw_set(), old;
    sigemptyset(&old);
    int rc = below(2) ? sigprocmask(how, &set, &old) : (errno = pthread_sigmask(how, &set, &old)) ? -1 : 0;
    tell(rc, "mask %d %lx of %lx", how, bits(&set), bits(&old));
}

static void send_one(void)
{
    struct number *n = drawn();
    union sigval value = {.sival_int = (int)below(1000)};
    switch (below(9)) {
    case 0:
        tell(raise(n->number), "raise %s", n->name);
        break;
    case 1:
    case 2:
        tell(kill(getpid(), n->number), "kill %s", n->name);
        break;
    case 3:
        tell(kill(0, n->number), "kill the group %s", n->name);
        break;
    case 4:
    case 5:
        tell(sigqueue(getpid(), n->number, value), "sigqueue %s %d", n->name, value.sival_int);
        break;
    case 6:
        tell_error(pthread_sigqueue(pthread_self(), n->number, value), "pthread_sigqueue %s %d", n->name,
                   value.sival_int);
        break;
    case 7:
        tell(tgkill(getpid(), gettid(), n->number), "tgkill %s", n->name);
        break;
    default:
        switch (below(5)) {
        case 0:
            told("kill with a wrong number", kill(getpid(), 65 + (int)below(3)));
            break;
        case 1:
            told("kill with no number", kill(getpid(), 0));
            break;
        case 2:
            told("kill of nobody", kill(9999999, n->number));
            break;
        case 3:
            told("tgkill of nobody", tgkill(getpid(), 9999999, n->number));
            break;
        default:
            told("tgkill of 0", tgkill(0, gettid(), n->number));
            break;
        }
        break;
    }
}

/* A handler's own calls. */
static void meddle(void)
{
    sigset_t set = draw_set(), pending;
    int which = (int)below(2);
    stack_t stack = {.ss_sp = stacks[which], .ss_size = STACK_SIZE, .ss_flags = below(3) ? 0 : (int)SS_AUTODISARM};
    switch (below(6)) {
    case 0:
    case 1:
        if (sent++ < MOST_SENT)
            send_one();
        break;
    case 2:
        mask();
        break;
    case 3:
        CHECK(sigpending(&pending) == 0);
        say("  pending %lx", bits(&pending));
        break;
    case 4:
        if (used[which] == 0)
            tell(sigaltstack(&stack, NULL), "sigaltstack in a handler, %d %x", which, (unsigned)stack.ss_flags);
        break;
    default:
        CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
        say("  unblocked %lx", bits(&set));
        break;
    }
}

/* The number of the stack that something is on; -1: of no alternate one. */
static int stack_of(const void *at)
{
    for (int i = 0; i < 2; i++)
        if ((const unsigned char *)at >= stacks[i] && (const unsigned char *)at < stacks[i] + STACK_SIZE)
            return i;
    return -1;
}

static void handled(int number, const siginfo_t *info, const ucontext_t *context)
{
    int error = errno;
    sigset_t now;
    int on = stack_of(&now);
    if (on >= 0)
        used[on]++;
    nested++;
    CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
    say("  %d handler of %s on stack %d, mask %lx", nested, number_of(number)->name, on, bits(&now));
    if (info != NULL) {
        CHECK(info->si_signo == number);
        say("    code %d, value %d, by %s, mask before %lx", info->si_code,
            info->si_code == SI_QUEUE ? info->si_value.sival_int : 0, info->si_pid == getpid() ? "itself" : "another",
            bits(&context->uc_sigmask));
        say("    stack %d, %zu, %x", stack_of(context->uc_stack.ss_sp), context->uc_stack.ss_size,
            (unsigned)context->uc_stack.ss_flags);
    }
    if (nested < MOST_NESTED && below(3) == 0)
        meddle();
    if (below(24) == 0) {
        say("  %d jumps", nested);
        siglongjmp(back, 1);
    }
    say("  %d ends", nested);
    nested--;
    if (on >= 0)
        used[on]--;
    errno = error;
}

static void plain_handler(int number)
{
    handled(number, NULL, NULL);
}

static void full_handler(int number, siginfo_t *info, void *context)
{
    handled(number, info, context);
}

static int has_handler(const struct number *n)
{
    struct sigaction now;
    CHECK(sigaction(n->number, NULL, &now) == 0);
    return now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN;
}

static const char *handler_name(const struct sigaction *action)
{
    if (action->sa_handler == SIG_DFL)
        return "default";
    if (action->sa_handler == SIG_IGN)
        return "ignored";
    return action->sa_handler == plain_handler ? "plain" : action->sa_sigaction == full_handler ? "full" : "unknown";
}

static void dispose(struct number *n)
{
    static const int more[] = {SA_NODEFER, SA_RESTART, SA_ONSTACK, SA_NOCLDSTOP};
    struct sigaction action = {.sa_flags = 0}, old;
    action.sa_mask = draw_set();
    for (int i = 0; i < 4; i++)
        if (below(3) == 0)
            action.sa_flags |= more[i];
    if (n->harmless && below(3) == 0)
        action.sa_flags |= SA_RESETHAND;
    switch (below(5)) {
    case 0:
        action.sa_handler = n->harmless && below(2) ? SIG_DFL : SIG_IGN;
        break;
    case 1:
        action.sa_handler = plain_handler;
        break;
    default:
        action.sa_sigaction = full_handler;
        action.sa_flags |= SA_SIGINFO;
        break;
    }
    tell(sigaction(n->number, &action, &old), "sigaction %s: %s %x, %lx", n->name, handler_name(&action),
         (unsigned)action.sa_flags, bits(&action.sa_mask));
    say("  was %s %x, %lx", handler_name(&old), (unsigned)old.sa_flags, bits(&old.sa_mask));
}

static void misdispose(void)
{
    struct sigaction action = {.sa_handler = SIG_IGN};
    struct number *n = drawn();
    switch (below(4)) {
    case 0:
        told("sigaction KILL", sigaction(SIGKILL, &action, NULL));
        break;
    case 1:
        told("sigaction 65", sigaction(65, &action, NULL));
        break;
    case 2:
        told("sigaction KILL, only to look", sigaction(SIGKILL, NULL, &action));
        break;
    default:
        tell(signal(n->number, plain_handler) == SIG_ERR ? -1 : 0, "signal %s", n->name);
            break;
    }
}

static void told_information(const siginfo_t *info)
{
    say("  %s, code %d, value %d", number_of(info->si_signo)->name, info->si_code,
        info->si_code == SI_QUEUE ? info->si_value.sival_int : 0);
}

/* Takes pending signals without handlers. */
static void take(void)
{
    sigset_t set = draw_set(), pending, both;
    struct timespec none = {0, 0}, wrong = {0, -1};
    siginfo_t info;
    int number, rc;
    CHECK(sigpending(&pending) == 0);
    sigandset(&both, &set, &pending);
    switch (below(4)) {
    case 0:
        say("%d pending %lx", sequence_call, bits(&pending));
        break;
    case 1:
        if (below(8) == 0)
            tell(sigtimedwait(&set, &info, &wrong), "sigtimedwait, wrong time");
        else if (tell(rc = sigtimedwait(&set, &info, &none), "sigtimedwait %lx", bits(&set)) > 0)
            told_information(&info);
        break;
    case 2:
        if (!sigisemptyset(&both) && tell(sigwaitinfo(&both, &info), "sigwaitinfo %lx", bits(&both)) > 0)
            told_information(&info);
        break;
    default:
        if (!sigisemptyset(&both) && tell_error(sigwait(&both, &number), "sigwait %lx", bits(&both)) == 0)
            say("  %s", number_of(number)->name);
        break;
    }
}

/* A pending signal has a handler, and the mask does not block it. */
static int would_interrupt(const sigset_t *mask)
{
    sigset_t pending;
    CHECK(sigpending(&pending) == 0);
    for (int i = 0; i < NUMBERS; i++)
        if (sigismember(&pending, numbers[i].number) && !sigismember(mask, numbers[i].number) &&
            has_handler(&numbers[i]))
            return 1;
    return 0;
}

/* Waits with a mask of their own. */
static void wait_masked(void)
{
    sigset_t set, old;
    struct timespec none = {0, 0};
    fd_set readable;
    struct file *ep = some_of(EPOLL);
    struct epoll_event events[4];
    if (below(2)) {
        sigfillset(&set);
        for (int n = (int)below(4); n > 0; n--)
            sigdelset(&set, drawn()->number);
    } else
        set = draw_set();
    switch (below(5)) {
    case 0:
    case 1:
        if (would_interrupt(&set))
            tell(sigsuspend(&set), "sigsuspend %lx", bits(&set));
        break;
    case 2:
        tell(ppoll(NULL, 0, would_interrupt(&set) && below(2) ? NULL : &none, &set), "ppoll %lx", bits(&set));
        break;
    case 3:
        FD_ZERO(&readable);
        tell(pselect(0, &readable, NULL, NULL, would_interrupt(&set) && below(2) ? NULL : &none, &set), "pselect %lx",
             bits(&set));
        break;
    default:
        if (ep != NULL)
            tell(epoll_pwait(ep->fd, events, 4, 0, &set), "epoll_pwait %lx", bits(&set));
        break;
    }
    CHECK(sigprocmask(SIG_BLOCK, NULL, &old) == 0);
    say("  mask after %lx", bits(&old));
}

static void alternate(void)
{
    static const int sizes[] = {STACK_SIZE, STACK_SIZE, STACK_SIZE / 2, 100};
    static const unsigned flag_sets[] = {0, 0, SS_DISABLE, SS_ONSTACK, SS_AUTODISARM, SS_AUTODISARM | SS_DISABLE, 7};
    stack_t stack = {
        .ss_sp = stacks[below(2)], .ss_size = (size_t)ONE_OF(sizes), .ss_flags = (int)ONE_OF(flag_sets)};
    stack_t old;
    memset(&old, 0, sizeof old);
    int rc = sigaltstack(below(4) ? &stack : NULL, &old);
    tell(rc, "sigaltstack %zu %x", stack.ss_size, (unsigned)stack.ss_flags);
    if (rc == 0)
        say("  was %d, %zu, %x", stack_of(old.ss_sp), old.ss_size, (unsigned)old.ss_flags);
}

static void use_descriptor(void)
{
    struct file *f = some_of(SIGNALS), *ep = some_of(EPOLL);
    struct signalfd_siginfo infos[3];
    sigset_t set = draw_set();
    int fd;
    switch (below(6)) {
    case 0:
        if (!room_for(1))
            break;
        fd = signalfd(-1, &set, SFD_NONBLOCK | (below(2) ? SFD_CLOEXEC : 0));
        tell(fd, "signalfd %lx", bits(&set));
        if (fd >= 0)
            add(SIGNALS, fd, NULL, NULL);
        break;
    case 1:
        if (f != NULL)
            tell(signalfd(f->fd, &set, 0), "signalfd %d again, %lx", f->fd, bits(&set));
        else if (room_for(1))
            make_epoll();
        break;
    case 2:
    case 3:
        if (f == NULL)
            break;
        size_t room = sizeof infos[0] * below(4);
        ssize_t got = tell(read(f->fd, infos, room), "read %d, %zu", f->fd, room);
        for (ssize_t i = 0; i < got / (ssize_t)sizeof infos[0]; i++)
            say("  %s, code %d, value %d", number_of((int)infos[i].ssi_signo)->name, infos[i].ssi_code,
                infos[i].ssi_code == SI_QUEUE ? infos[i].ssi_int : 0);
        break;
    case 4:
        if (f != NULL && ep != NULL)
            watch(ep, f, ~0u);
        break;
    default:
        if (ep != NULL)
            wait_events(ep);
        poll_all();
        break;
    }
}

static void act(void)
{
    struct file *f;
    sigset_t now;
    if (sigsetjmp(back, sequence_call % 3 != 0) != 0) {
        nested = used[0] = used[1] = 0;
        CHECK(sigprocmask(SIG_BLOCK, NULL, &now) == 0);
        say("  landed, mask %lx", bits(&now));
        return;
    }
    switch (below(16)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
        send_one();
        break;
    case 5:
    case 6:
    case 7:
        mask();
        break;
    case 8:
    case 9:
        dispose(drawn());
        break;
    case 10:
        misdispose();
        break;
    case 11:
        take();
        break;
    case 12:
        wait_masked();
        break;
    case 13:
        alternate();
        break;
    case 14:
        use_descriptor();
        break;
    default:
        f = some();
        if (f != NULL && below(3) == 0)
            close_one(f);
        else
            use_descriptor();
        break;
    }
}

static void begin(void)
{
    stack_t disable = {.ss_flags = SS_DISABLE};
    nested = sent = 0;
    /* Before a process has ever named one, Linux keeps a handler's choice: it takes "none" in the frame for a stack that is too small. */
    CHECK(sigaltstack(&disable, NULL) == 0);
    for (int i = 0; i < NUMBERS; i++) {
        struct sigaction action = {.sa_sigaction = full_handler, .sa_flags = SA_SIGINFO};
        CHECK(sigaction(numbers[i].number, &action, NULL) == 0);
    }
}

static void end(void)
{
    sigset_t none;
    stack_t disable = {.ss_flags = SS_DISABLE};
    sigemptyset(&none);
    for (int i = 0; i < NUMBERS; i++)
        CHECK(signal(numbers[i].number, SIG_IGN) != SIG_ERR);
    CHECK(sigprocmask(SIG_SETMASK, &none, NULL) == 0);
    CHECK(sigaltstack(&disable, NULL) == 0);
    close_all();
}

int main(int argc, char **argv)
{
    kind_names = names;
    epoll_kind = EPOLL;
    return run_sequences(argc, argv, &(struct sequences){.calls = 60, .begin = begin, .act = act, .end = end});
}
