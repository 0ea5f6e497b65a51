/* A server that tries to get out, as it is told: one connection at a time, a line a try, answered by "ok" or the errno's number.
 *
 *     unix PATH     connects to a socket
 *     read PATH     opens a file, and reads a byte
 *     write PATH    opens a file for writing
 *     kill PID      signal 0 to a process
 *     trace PID     attaches to it
 *     shut FD       cuts a descriptor short, and closes it
 *
 *     reach PORT
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int attempt(const char *what, const char *whom)
{
    char byte;
    if (strcmp(what, "unix") == 0) {
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        strncpy(to.sun_path, whom, sizeof to.sun_path - 1);
        return connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&to, sizeof to);
    }
    if (strcmp(what, "read") == 0)
        return read(open(whom, O_RDONLY), &byte, 1) < 0 ? -1 : 0;
    if (strcmp(what, "write") == 0)
        return open(whom, O_WRONLY | O_APPEND);
    if (strcmp(what, "kill") == 0)
        return kill(atoi(whom), 0);
    if (strcmp(what, "trace") == 0)
        return (int)ptrace(PTRACE_SEIZE, atoi(whom), 0, 0);
    if (strcmp(what, "shut") == 0)
        return ftruncate(atoi(whom), 0) == 0 || close(atoi(whom)) == 0 ? 0 : -1;
    errno = EDOM;
    return -1;
}

int main(int count, char **words)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(count > 1 ? atoi(words[1]) : 0)};
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&here, sizeof here) || listen(listener, 16))
        return 1;
    for (;;) {
        FILE *client = fdopen(accept(listener, 0, 0), "r+");
        char line[512], what[16], whom[256];
        while (client && fgets(line, sizeof line, client)) {
            errno = EINVAL;
            if (sscanf(line, "%15s %255s", what, whom) == 2 && attempt(what, whom) >= 0)
                fprintf(client, "ok\n");
            else
                fprintf(client, "%d\n", errno);
            fflush(client);
        }
        if (client)
            fclose(client);
    }
}
