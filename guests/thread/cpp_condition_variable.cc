// std::condition_variable and _any: wait, wait_for, wait_until, notify_one, notify_all, notify_all_at_thread_exit.
//
// expect: same
#include "guest.h"
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

using namespace std::chrono_literals;

int main()
{
    std::mutex lock;
    std::condition_variable cond;
    std::deque<int> queue;
    long sum = 0;
    std::thread consumer([&] {
        for (;;) {
            std::unique_lock guard(lock);
            cond.wait(guard, [&] { return !queue.empty(); });
            int item = queue.front();
            queue.pop_front();
            if (item < 0)
                return;
            sum += item;
        }
    });
    for (int i = 0; i < 500; i++) {
        std::lock_guard guard(lock);
        queue.push_back(i);
        cond.notify_one();
    }
    {
        std::lock_guard guard(lock);
        queue.push_back(-1);
        cond.notify_all();
    }
    consumer.join();
    say("sum %ld", sum);

    std::unique_lock guard(lock);
    auto start = std::chrono::steady_clock::now();
    CHECK(cond.wait_for(guard, 20ms, [] { return false; }) == false);
    CHECK(std::chrono::steady_clock::now() - start >= 20ms);
    CHECK(!cond.wait_until(guard, std::chrono::system_clock::now() + 20ms, [] { return false; }));
    std::condition_variable_any any;
    CHECK(!any.wait_for(guard, 10ms, [] { return false; }));
    say("timed out three times");
    bool exited = false;
    std::thread([&] {
        std::unique_lock inside(lock);
        exited = true;
        std::notify_all_at_thread_exit(cond, std::move(inside));
    }).detach();
    cond.wait(guard, [&] { return exited; });
    say("told at thread exit");
    return 0;
}
