/* Calls of a server, each between two marks: `hooks.rs` counts the instructions from one mark to the other.
 *
 * A mark is the instruction int3, at which the tracer of this process finds it stopped; without a tracer it would be killed there, so it waits for one.
 * A mark's rax is the address of the name of the call that begins, or 0 where it ends.
 */
#include "guest.h"
#include <sys/epoll.h>
#include <sys/syscall.h>

/* An odd number, so that there is a median. */
#define ROUNDS 51
/* More executions than the runtime waits for before it replaces a place that traps. */
#define OFTEN 300
#define BYTES 64

/* The tracer is there: it sets this. */
volatile int traced;

static inline void mark(const char *name)
{
    __asm__ volatile("int3" : : "a"(name) : "memory");
}

/* Counts `call`, which must be true. */
#define COUNT(name, call)                                                                                              \
    do {                                                                                                               \
        for (int round = 0; round < ROUNDS; round++) {                                                                 \
            mark(name);                                                                                                \
            int right = (call);                                                                                        \
            mark(NULL);                                                                                                \
            CHECK(right);                                                                                              \
        }                                                                                                              \
    } while (0)

/* A system call without a function: it comes to the runtime by the net, and after a while by a stub in its place. */
static __attribute__((noinline)) long inline_clock(struct timespec *now)
{
    long result;
    __asm__ volatile("syscall\n\tcmp $-4096, %%rax"
                     : "=a"(result)
                     : "a"(SYS_clock_gettime), "D"(CLOCK_MONOTONIC), "S"(now)
                     : "rcx", "r11", "memory", "cc");
    return result;
}

int main(void)
{
    char bytes[BYTES] = {0};
    struct timespec now;
    struct epoll_event event = {.events = EPOLLIN};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    int in_pipe[2], pair[2], epoll = epoll_create1(0);
    CHECK(pipe(in_pipe) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && epoll >= 0);
    while (!traced)
        ;

    COUNT("clock_gettime", clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    COUNT("mutex lock, unlock", pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
    COUNT("pipe write, read", write(in_pipe[1], bytes, BYTES) == BYTES && read(in_pipe[0], bytes, BYTES) == BYTES);
    COUNT("socket send, recv", send(pair[1], bytes, BYTES, 0) == BYTES && recv(pair[0], bytes, BYTES, 0) == BYTES);

    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, pair[0], &event) == 0 && send(pair[1], bytes, 1, 0) == 1);
    COUNT("epoll_wait, ready", epoll_wait(epoll, &event, 1, -1) == 1);

    for (int round = 0; round < OFTEN; round++)
        CHECK(inline_clock(&now) == 0);
    COUNT("a replaced place", inline_clock(&now) == 0);
    return 0;
}
