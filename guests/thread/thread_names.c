/* pthread_self, equal, setname_np, getname_np, gettid, sched_yield, affinity and scheduling queries.
 *
 * expect: same
 */
#include "guest.h"

static void *other(void *arg)
{
    char name[16];
    CHECK(!pthread_equal(pthread_self(), *(pthread_t *)arg));
    CHECK(gettid() != getpid());
    CHECK(pthread_setname_np(pthread_self(), "worker") == 0);
    CHECK(pthread_getname_np(pthread_self(), name, sizeof name) == 0);
    CHECK(strcmp(name, "worker") == 0);
    CHECK(sched_yield() == 0);
    note("tid - pid %d", gettid() - getpid());
    return (void *)pthread_self();
}

int main(void)
{
    pthread_t self = pthread_self();
    char name[16];
    CHECK(pthread_equal(self, pthread_self()));
    CHECK(gettid() == getpid());
    pthread_t thread = spawn(other, &self);
    CHECK((pthread_t)join(thread) == thread);
    CHECK(pthread_setname_np(self, "a name that is far too long") == ERANGE);
    CHECK(pthread_setname_np(self, "main") == 0);
    CHECK(pthread_getname_np(self, name, 3) == ERANGE);
    CHECK(pthread_getname_np(self, name, sizeof name) == 0);
    int policy;
    struct sched_param param;
    CHECK(pthread_getschedparam(self, &policy, &param) == 0 && policy == SCHED_OTHER);
    cpu_set_t cpus;
    CHECK(pthread_getaffinity_np(self, sizeof cpus, &cpus) == 0 && CPU_COUNT(&cpus) >= 1);
    say("name %s", name);
    return 0;
}
