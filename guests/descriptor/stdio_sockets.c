/* stdio on sockets and pipes: fdopen, fprintf, getline, dprintf, vdprintf, setvbuf, end of file and errors; preadv2 and pwritev2.
 *
 * expect: same
 */
#include "guest.h"
#include <sys/uio.h>

static void *answer(void *arg)
{
    int fd = *(int *)arg;
    FILE *in = fdopen(dup(fd), "r"), *out = fdopen(fd, "w");
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    int count = 0;
    CHECK(in && out);
    while ((n = getline(&line, &room, in)) > 0) {
        line[n - 1] = 0;
        CHECK(fprintf(out, "%d: %s\n", ++count, line) > 0);
        CHECK(fflush(out) == 0);
    }
    CHECK(feof(in) && !ferror(in));
    free(line);
    fclose(in);
    fputs("bye\n", out);
    CHECK(fclose(out) == 0);
    return NULL;
}

static void talk(int ends[2])
{
    pthread_t server = spawn(answer, &ends[1]);
    FILE *stream = fdopen(ends[0], "r+");
    char line[64];
    CHECK(stream);
    CHECK(fputs("first\n", stream) >= 0 && fflush(stream) == 0);
    CHECK(fgets(line, sizeof line, stream) && strcmp(line, "1: first\n") == 0);
    CHECK(dprintf(fileno(stream), "sec%s\n", "ond") == 7);
    CHECK(fgets(line, sizeof line, stream) && strcmp(line, "2: second\n") == 0);
    CHECK(setvbuf(stream, NULL, _IONBF, 0) == 0);
    CHECK(fputc('x', stream) == 'x' && fputc('\n', stream) == '\n');
    CHECK(fgets(line, sizeof line, stream) && strcmp(line, "3: x\n") == 0);
    CHECK(shutdown(fileno(stream), SHUT_WR) == 0);
    CHECK(fgets(line, sizeof line, stream) && strcmp(line, "bye\n") == 0);
    CHECK(fgetc(stream) == EOF && feof(stream));
    join(server);
    CHECK(fclose(stream) == 0);
}

int main(void)
{
    int ends[2], p[2];
    char buffer[32], other[8];
    signal(SIGPIPE, SIG_IGN);
    tcp_pair(ends);
    talk(ends);
    say("TCP");
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    talk(ends);
    say("UNIX");

    CHECK(pipe(p) == 0);
    FILE *out = fdopen(p[1], "w"), *in = fdopen(p[0], "r");
    CHECK(fprintf(out, "%d %s %x\n", 17, "words", 255) > 0 && fflush(out) == 0);
    int number, hex;
    CHECK(fscanf(in, "%d %31s %x", &number, buffer, &hex) == 3 && number == 17 && hex == 255);
    CHECK(fseek(out, 0, SEEK_SET) == -1 && errno == ESPIPE);
    CHECK(fclose(in) == 0);
    CHECK(fputs("lost", out) >= 0 && fflush(out) == EOF && errno == EPIPE && ferror(out));
    fclose(out);
    say("pipes");

    CHECK(pipe(p) == 0);
    struct iovec parts[2] = {{buffer, 3}, {other, sizeof other}};
    memcpy(buffer, "abc", 3);
    memcpy(other, "defghijk", 8);
    CHECK_ERRNO(pwritev(p[1], parts, 2, 0), ESPIPE);
    CHECK_ERRNO(preadv(p[0], parts, 2, 0), ESPIPE);
    CHECK_ERRNO(pwritev2(p[1], parts, 2, 5, 0), ESPIPE);
    CHECK(pwritev2(p[1], parts, 2, -1, 0) == 11);
    memset(buffer, 0, sizeof buffer);
    CHECK(preadv2(p[0], parts, 1, -1, 0) == 3 && memcmp(buffer, "abc", 3) == 0);
    FILE *file = tmpfile();
    CHECK(pwritev2(fileno(file), parts, 2, 4, RWF_DSYNC) == 11);
    CHECK(preadv(fileno(file), parts, 2, 4) == 11 && memcmp(other, "defghijk", 8) == 0);
    CHECK(preadv2(fileno(file), parts, 2, 12, 0) == 3);
    say("positions");
    return 0;
}
