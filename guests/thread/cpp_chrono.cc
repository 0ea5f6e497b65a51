// std::chrono clocks and sleep_for, sleep_until; std::random_device; their values go to standard error.
//
// expect: same
#include "guest.h"
#include <chrono>
#include <random>
#include <thread>

using namespace std::chrono_literals;
using namespace std::chrono;

int main()
{
    auto steady = steady_clock::now();
    auto system = system_clock::now();
    std::this_thread::sleep_for(20ms);
    CHECK(steady_clock::now() - steady >= 20ms);
    std::this_thread::sleep_until(steady + 40ms);
    CHECK(steady_clock::now() - steady >= 40ms);
    CHECK(system_clock::now() >= system);
    std::this_thread::sleep_until(system - 1s);
    note("steady %lld system %lld", (long long)steady.time_since_epoch().count(), (long long)system.time_since_epoch().count());
    std::random_device device;
    std::mt19937 engine(device());
    note("random %u", (unsigned)engine());
    say("slept and drew");
    return 0;
}
