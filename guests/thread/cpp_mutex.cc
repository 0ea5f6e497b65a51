// std::mutex, recursive_mutex, timed_mutex, shared_mutex, scoped_lock over two without a deadlock.
// With a turn an operation two threads that try, back off and try again do so in lockstep for ever, as a schedule may: hence the quantum.
//
// expect: same
// finest: quantum 2
#include "guest.h"
#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main()
{
    std::mutex left, right;
    std::recursive_mutex recursive;
    long counter = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            for (int k = 0; k < 300; k++) {
                if (i % 2) {
                    std::scoped_lock both(left, right);
                    counter++;
                } else {
                    std::scoped_lock both(right, left);
                    counter++;
                }
                std::lock_guard outer(recursive);
                std::lock_guard inner(recursive);
            }
        });
    for (auto &thread : threads)
        thread.join();
    say("counter %ld", counter);

    std::timed_mutex timed;
    timed.lock();
    std::thread([&] {
        CHECK(!timed.try_lock());
        auto start = std::chrono::steady_clock::now();
        CHECK(!timed.try_lock_for(20ms));
        CHECK(std::chrono::steady_clock::now() - start >= 20ms);
        CHECK(!timed.try_lock_until(std::chrono::system_clock::now() + 20ms));
    }).join();
    timed.unlock();
    say("timed_mutex timed out");

    std::shared_timed_mutex shared;
    std::shared_lock reader(shared);
    std::thread([&] {
        CHECK(shared.try_lock_shared());
        shared.unlock_shared();
        CHECK(!shared.try_lock());
        CHECK(!shared.try_lock_for(10ms));
    }).join();
    reader.unlock();
    std::unique_lock writer(shared);
    say("shared_mutex shared");
    return 0;
}
