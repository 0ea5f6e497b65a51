/* Thread attributes: stack size, guard, own stack, getattr_np inside the thread; deep recursion fits.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/mman.h>

static void *inspect(void *arg)
{
    pthread_attr_t attr;
    void *base;
    size_t size, guard;
    int here, state;
    CHECK(pthread_getattr_np(pthread_self(), &attr) == 0);
    CHECK(pthread_attr_getstack(&attr, &base, &size) == 0);
    CHECK(pthread_attr_getguardsize(&attr, &guard) == 0);
    CHECK(pthread_attr_getdetachstate(&attr, &state) == 0 && state == PTHREAD_CREATE_JOINABLE);
    CHECK((char *)&here > (char *)base && (char *)&here < (char *)base + size);
    CHECK(size >= *(size_t *)arg);
    note("stack %p size %zu guard %zu", base, size, guard);
    CHECK(pthread_attr_destroy(&attr) == 0);
    return NULL;
}

static int recurse(int depth)
{
    volatile char frame[1024];
    frame[0] = (char)depth;
    return depth == 0 ? 0 : recurse(depth - 1) + (frame[0] == (char)depth);
}

static void *deep(void *arg)
{
    (void)arg;
    return (void *)(intptr_t)recurse(8000);
}

int main(void)
{
    pthread_attr_t attr;
    pthread_t thread;
    size_t size = 0;
    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_getstacksize(&attr, &size) == 0 && size > 65536);
    CHECK(pthread_attr_setstacksize(&attr, 100) == EINVAL);
    size = 256 << 10;
    CHECK(pthread_attr_setstacksize(&attr, size) == 0);
    CHECK(pthread_attr_setguardsize(&attr, 4096) == 0);
    CHECK(pthread_create(&thread, &attr, inspect, &size) == 0);
    join(thread);
    size = 16 << 20;
    CHECK(pthread_attr_setstacksize(&attr, size) == 0);
    CHECK(pthread_create(&thread, &attr, deep, &size) == 0);
    say("recursion %ld", (long)join(thread));
    void *stack = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(stack != MAP_FAILED);
    CHECK(pthread_attr_setstack(&attr, stack, 1 << 20) == 0);
    size = 512 << 10;
    CHECK(pthread_create(&thread, &attr, inspect, &size) == 0);
    join(thread);
    CHECK(pthread_attr_destroy(&attr) == 0);
    size = 0;
    inspect(&size);
    say("attributes hold");
    return 0;
}
