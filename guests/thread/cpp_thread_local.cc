// thread_local objects: constructed on first use in each thread, destroyed at its end and at exit; static destructors.
//
// expect: same
#include "guest.h"
#include <atomic>
#include <thread>

static std::atomic<int> alive{0}, total{0};

struct Local {
    Local() : id(++total) { alive++; }
    ~Local() { alive--; }
    int id;
    int uses = 0;
};

static thread_local Local local;

struct AtExit {
    ~AtExit()
    {
        printf("static destroyed, locals alive %d\n", alive.load());
    }
};

static AtExit at_exit;

int main()
{
    for (int i = 0; i < 3; i++)
        std::thread([i] {
            for (int k = 0; k <= i; k++)
                local.uses++;
            say("thread %d: object %d used %d times", i, local.id, local.uses);
        }).join();
    say("alive %d of %d", alive.load(), total.load());
    std::thread([] {}).join();
    say("unused: %d made", total.load());
    local.uses++;
    say("main's: %d, alive %d", local.id, alive.load());
    return 0;
}
