/* timer_create with every way to notify: a signal with its value, a thread, a function, nothing; periods, overruns, absolute times.
 *
 * expect: same
 */
#include "guest.h"

static volatile int count, value;
static int calls;
static volatile pthread_t caller;

static void handler(int number, siginfo_t *info, void *context)
{
    (void)context;
    CHECK(number == SIGRTMIN && info->si_code == SI_TIMER);
    value = info->si_value.sival_int;
    caller = pthread_self();
    count++;
}

static void call(union sigval with)
{
    CHECK(with.sival_int == 77);
    CHECK(!pthread_equal(pthread_self(), *(pthread_t *)&caller));
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
}

static void set(timer_t timer, int64_t first, int64_t period)
{
    struct itimerspec spec = {.it_value = to_timespec(first), .it_interval = to_timespec(period)};
    CHECK(timer_settime(timer, 0, &spec, NULL) == 0);
}

static pid_t worker_tid;
static volatile int worker_stop;

static void *worker(void *arg)
{
    __atomic_store_n(&worker_tid, gettid(), __ATOMIC_SEQ_CST);
    while (!worker_stop)
        sleep_ms(1);
    return arg;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN, .sigev_value.sival_int = 42};
    struct itimerspec spec;
    timer_t timer;
    CHECK(sigaction(SIGRTMIN, &action, NULL) == 0);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_gettime(timer, &spec) == 0);
    CHECK(spec.it_value.tv_sec == 0 && spec.it_value.tv_nsec == 0);
    set(timer, 5 * NS_PER_MS, 0);
    while (count < 1)
        pause();
    CHECK(value == 42);
    say("once");
    set(timer, 2 * NS_PER_MS, 2 * NS_PER_MS);
    while (count < 4)
        pause();
    set(timer, 0, 0);
    say("periods");

    sigset_t one, old;
    siginfo_t info;
    sigemptyset(&one);
    sigaddset(&one, SIGRTMIN);
    CHECK(sigprocmask(SIG_BLOCK, &one, &old) == 0);
    set(timer, NS_PER_MS, NS_PER_MS);
    sleep_ms(20);
    CHECK(sigwaitinfo(&one, &info) == SIGRTMIN);
    CHECK(info.si_overrun >= 10);
    CHECK(timer_getoverrun(timer) == info.si_overrun);
    set(timer, 0, 0);
    struct timespec none = {0, 0};
    while (sigtimedwait(&one, NULL, &none) > 0)
        ;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &spec.it_value) == 0);
    spec.it_value.tv_sec -= 1;
    spec.it_interval = none;
    CHECK(timer_settime(timer, TIMER_ABSTIME, &spec, NULL) == 0);
    CHECK(sigwaitinfo(&one, &info) == SIGRTMIN);
    CHECK(timer_delete(timer) == 0);
    CHECK_ERRNO(timer_delete(timer), EINVAL);
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    say("overrun");

    pthread_t t = spawn(worker, NULL);
    while (__atomic_load_n(&worker_tid, __ATOMIC_SEQ_CST) == 0)
        sleep_ms(1);
    event.sigev_notify = SIGEV_THREAD_ID;
    event._sigev_un._tid = worker_tid;
    CHECK(timer_create(CLOCK_REALTIME, &event, &timer) == 0);
    count = 0;
    set(timer, NS_PER_MS, 0);
    while (count < 1)
        sleep_ms(1);
    CHECK(pthread_equal(*(pthread_t *)&caller, t));
    worker_stop = 1;
    join(t);
    CHECK(timer_delete(timer) == 0);
    say("thread");

    caller = pthread_self();
    struct sigevent function = {.sigev_notify = SIGEV_THREAD, .sigev_value.sival_int = 77};
    function.sigev_notify_function = call;
    CHECK(timer_create(CLOCK_MONOTONIC, &function, &timer) == 0);
    set(timer, NS_PER_MS, 3 * NS_PER_MS);
    while (__atomic_load_n(&calls, __ATOMIC_SEQ_CST) < 3)
        sleep_ms(1);
    CHECK(timer_delete(timer) == 0);
    say("function");

    event.sigev_notify = SIGEV_NONE;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    set(timer, 1000 * NS_PER_S, 0);
    CHECK(timer_gettime(timer, &spec) == 0);
    CHECK(spec.it_value.tv_sec >= 999);
    set(timer, NS_PER_MS, 0);
    sleep_ms(5);
    CHECK(timer_gettime(timer, &spec) == 0);
    CHECK(spec.it_value.tv_sec == 0 && spec.it_value.tv_nsec == 0);
    CHECK(timer_delete(timer) == 0);
    event.sigev_notify = 99;
    CHECK_ERRNO(timer_create(CLOCK_MONOTONIC, &event, &timer), EINVAL);
    say("silent");
    return 0;
}
