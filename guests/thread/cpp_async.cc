// std::async, packaged_task, shared_future, wait_for, exceptions through a future.
//
// expect: same
#include "guest.h"
#include <chrono>
#include <future>
#include <stdexcept>
#include <vector>

using namespace std::chrono_literals;

static long fibonacci(int n)
{
    if (n < 12)
        return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
    auto left = std::async(std::launch::async, fibonacci, n - 1);
    long right = fibonacci(n - 2);
    return left.get() + right;
}

int main()
{
    say("fibonacci %ld", fibonacci(15));
    auto failing = std::async(std::launch::async, []() -> int { throw std::runtime_error("passed on"); });
    try {
        failing.get();
        CHECK(!"no exception");
    } catch (const std::runtime_error &error) {
        say("exception: %s", error.what());
    }
    std::promise<int> promise;
    std::shared_future<int> shared = promise.get_future().share();
    CHECK(shared.wait_for(10ms) == std::future_status::timeout);
    std::vector<std::future<int>> readers;
    for (int i = 0; i < 3; i++)
        readers.push_back(std::async(std::launch::async, [shared, i] { return shared.get() + i; }));
    promise.set_value(40);
    for (auto &reader : readers)
        say("shared %d", reader.get());
    auto deferred = std::async(std::launch::deferred, [] { return 3; });
    CHECK(deferred.wait_for(0s) == std::future_status::deferred);
    say("deferred %d", deferred.get());
    return 0;
}
