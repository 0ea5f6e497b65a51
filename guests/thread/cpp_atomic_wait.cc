// C++20 atomic wait and notify, latch, barrier, counting_semaphore.
//
// expect: same
#include "guest.h"
#include <atomic>
#include <barrier>
#include <chrono>
#include <latch>
#include <semaphore>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

int main()
{
    std::atomic<int> ball{0};
    std::thread player([&] {
        for (int i = 0; i < 100; i++) {
            ball.wait(0);
            ball.store(0);
            ball.notify_one();
        }
    });
    for (int i = 0; i < 100; i++) {
        ball.store(1);
        ball.notify_one();
        ball.wait(1);
    }
    player.join();
    say("100 rallies");

    std::latch latch(4);
    int phases = 0;
    std::barrier barrier(4, [&]() noexcept { phases++; });
    std::counting_semaphore<2> room(2);
    std::atomic<int> inside{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            latch.arrive_and_wait();
            for (int k = 0; k < 20; k++) {
                barrier.arrive_and_wait();
                room.acquire();
                CHECK(++inside <= 2);
                inside--;
                room.release();
            }
        });
    for (auto &thread : threads)
        thread.join();
    say("phases %d", phases);
    CHECK(room.try_acquire() && room.try_acquire());
    CHECK(!room.try_acquire_for(10ms));
    say("semaphore timed out");
    return 0;
}
