// O_ASYNC: SIGIO when a descriptor becomes ready, by fcntl and by ioctl; not after it is switched off.
//
// expect: same
#include "guest.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static volatile sig_atomic_t seen;

static void count(int sig) { (void)sig; seen++; }

int main(void)
{
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    int pair[2];
    char byte;

    CHECK(sigaction(SIGIO, &action, NULL) == 0);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    CHECK(fcntl(pair[0], F_GETOWN) == 0);
    CHECK(fcntl(pair[0], F_SETOWN, getpid()) == 0);
    printf("owner is this process: %d\n", fcntl(pair[0], F_GETOWN) == getpid());

    int on = 1;
    CHECK(ioctl(pair[0], FIOASYNC, &on) == 0);
    printf("flag after ioctl: %d\n", (fcntl(pair[0], F_GETFL) & O_ASYNC) != 0);
    CHECK(write(pair[1], "a", 1) == 1);
    printf("signals after a byte: %d\n", seen > 0);
    CHECK(read(pair[0], &byte, 1) == 1 && byte == 'a');

    CHECK(fcntl(pair[0], F_SETFL, fcntl(pair[0], F_GETFL) & ~O_ASYNC) == 0);
    seen = 0;
    CHECK(write(pair[1], "b", 1) == 1);
    printf("signals when switched off: %d\n", (int)seen);
    CHECK(read(pair[0], &byte, 1) == 1 && byte == 'b');

    CHECK(fcntl(pair[0], F_SETFL, fcntl(pair[0], F_GETFL) | O_ASYNC) == 0);
    CHECK(close(pair[1]) == 0);
    printf("signals at the end: %d\n", seen > 0);
    return 0;
}
