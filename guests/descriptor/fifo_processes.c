/* FIFOs between processes: requests of several children to one, libc's streams, an open that is interrupted or dies.
 *
 * expect: same
 */
#include "guest.h"
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char requests[64], answers[4][64];

static void nothing(int signo)
{
    (void)signo;
}

static void client(int number)
{
    char line[32];
    FILE *out = fopen(requests, "w");
    CHECK(out != NULL && fprintf(out, "%d\n", number) > 0 && fclose(out) == 0);
    FILE *in = fopen(answers[number], "r");
    CHECK(in != NULL && fgets(line, sizeof line, in) != NULL);
    _exit(atoi(line));
}

int main(void)
{
    int status, sum = 0;
    char line[32];
    snprintf(requests, sizeof requests, "requests");
    CHECK(mkfifo(requests, 0600) == 0);
    for (int i = 1; i <= 3; i++) {
        snprintf(answers[i], sizeof answers[i], "answers-%d", i);
        CHECK(mknod(answers[i], S_IFIFO | 0600, 0) == 0);
    }

    for (int i = 1; i <= 3; i++) {
        if (fork() == 0)
            client(i);
    }
    for (int left = 3; left > 0;) {
        FILE *in = fopen(requests, "r");
        CHECK(in != NULL);
        while (fgets(line, sizeof line, in) != NULL) {
            int number = atoi(line);
            FILE *out = fopen(answers[number], "w");
            CHECK(out != NULL && fprintf(out, "%d\n", 10 + number) > 0 && fclose(out) == 0);
            CHECK(wait(&status) > 0 && WIFEXITED(status));
            sum += WEXITSTATUS(status);
            left--;
        }
        CHECK(fclose(in) == 0);
    }
    say("answers: %d", sum);

    /* A signal ends an open that waits, or does not. */
    struct sigaction action = {.sa_handler = nothing};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    alarm(1);
    CHECK_ERRNO(open(requests, O_RDONLY), EINTR);
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    pid_t late = fork();
    if (late == 0) {
        sleep(2);
        int fd = open(requests, O_WRONLY);
        _exit(fd >= 0 && write(fd, "x", 1) == 1 ? 0 : 1);
    }
    alarm(1);
    int fd = open(requests, O_RDONLY);
    CHECK(fd >= 0 && read(fd, line, 2) == 1);
    CHECK(waitpid(late, &status, 0) == late && status == 0);
    CHECK(read(fd, line, 2) == 0 && close(fd) == 0);
    say("interrupted and gone on");

    /* A process that is killed while it waits in open leaves no end behind. */
    int told[2];
    CHECK(pipe(told) == 0);
    pid_t killed = fork();
    if (killed == 0) {
        CHECK(write(told[1], "x", 1) == 1);
        open(requests, O_RDONLY);
        _exit(1);
    }
    CHECK(read(told[0], line, 1) == 1);
    CHECK(kill(killed, SIGKILL) == 0 && waitpid(killed, &status, 0) == killed && WIFSIGNALED(status));
    CHECK_ERRNO(open(requests, O_WRONLY | O_NONBLOCK), ENXIO);
    /* An open end is inherited, and goes with the process. */
    int reader = open(requests, O_RDONLY | O_NONBLOCK), writer = open(requests, O_WRONLY);
    CHECK(reader >= 0 && writer >= 0);
    pid_t heir = fork();
    if (heir == 0) {
        CHECK(write(writer, "heir", 4) == 4);
        _exit(0);
    }
    CHECK(close(writer) == 0 && waitpid(heir, &status, 0) == heir && status == 0);
    CHECK(read(reader, line, sizeof line) == 4 && read(reader, line, sizeof line) == 0);
    say("killed and inherited");

    CHECK(unlink(requests) == 0);
    for (int i = 1; i <= 3; i++)
        CHECK(unlink(answers[i]) == 0);
    say("done");
    return 0;
}
