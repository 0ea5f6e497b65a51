// std::call_once with an exception first, function-local statics initialised under contention.
//
// expect: same
#include "guest.h"
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

static int constructed;

struct Slow {
    Slow()
    {
        sleep_ms(10);
        constructed++;
    }
    int value = 6;
};

static Slow &instance()
{
    static Slow slow;
    return slow;
}

int main()
{
    std::once_flag flag;
    int attempts = 0, thrown = 0;
    auto body = [&] {
        if (++attempts < 3)
            throw std::runtime_error("again");
    };
    for (int i = 0; i < 5; i++) {
        try {
            std::call_once(flag, body);
        } catch (const std::runtime_error &) {
            thrown++;
        }
    }
    say("attempts %d, thrown %d", attempts, thrown);
    std::vector<std::thread> threads;
    for (int i = 0; i < 5; i++)
        threads.emplace_back([] { CHECK(instance().value == 6); });
    for (auto &thread : threads)
        thread.join();
    say("constructed %d", constructed);
    return 0;
}
