// std::thread: start, join, move, detach with a promise, ids, arguments, hardware_concurrency, exceptions inside.
//
// expect: same
#include "guest.h"
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

int main()
{
    std::vector<std::thread> threads;
    std::vector<int> results(8);
    for (int i = 0; i < 8; i++)
        threads.emplace_back([i, &results] { results[i] = i * i; });
    for (auto &thread : threads)
        thread.join();
    for (int result : results)
        say("square %d", result);

    std::thread a([](std::string text, int n) { CHECK(text.size() == (size_t)n); }, "moved", 5);
    std::thread b = std::move(a);
    CHECK(!a.joinable() && b.joinable() && b.get_id() != std::this_thread::get_id());
    b.join();

    std::promise<int> promise;
    auto future = promise.get_future();
    std::thread([&promise] {
        try {
            throw std::runtime_error("inside");
        } catch (const std::exception &) {
            promise.set_value_at_thread_exit(7);
        }
    }).detach();
    say("detached gave %d", future.get());
    CHECK(std::thread::hardware_concurrency() >= 1);
    {
        std::jthread waiting([](std::stop_token stop) {
            while (!stop.stop_requested())
                std::this_thread::yield();
        });
    }
    say("jthread stopped");
    return 0;
}
