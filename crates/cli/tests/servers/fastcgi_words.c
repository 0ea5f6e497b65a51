/* A FastCGI responder: keeps every word that it is asked with, as a line of a file that all its processes share; "all" asks for the file.
 * The web server starts it with the listening UNIX socket as descriptor 0. One connection is one request. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BEGIN = 1, END = 3, PARAMS = 4, STDIN = 5, STDOUT = 6 };
enum { MOST = 65535 };

static int whole(int fd, void *to, size_t len) {
    char *at = to;
    while (len) {
        ssize_t n = read(fd, at, len);
        if (n <= 0) return 0;
        at += n;
        len -= n;
    }
    return 1;
}

static void put(int fd, int kind, const void *body, size_t len) {
    static unsigned char record[8 + MOST];
    unsigned char head[8] = {1, kind, 0, 1, len >> 8, len, 0, 0};
    memcpy(record, head, 8);
    memcpy(record + 8, body, len);
    size_t at = 0;
    while (at < 8 + len) {
        ssize_t n = send(fd, record + at, 8 + len - at, MSG_NOSIGNAL);
        if (n <= 0) return;
        at += n;
    }
}

static size_t length(const unsigned char **at) {
    size_t len = *(*at)++;
    if (len < 128) return len;
    len = (len & 127) << 24 | (*at)[0] << 16 | (*at)[1] << 8 | (*at)[2];
    *at += 3;
    return len;
}

/* The value of QUERY_STRING. */
static void query(const unsigned char *at, const unsigned char *end, char *out, size_t room) {
    *out = 0;
    while (at < end) {
        size_t name = length(&at), value = length(&at);
        if (name == 12 && !memcmp(at, "QUERY_STRING", 12) && value < room) {
            memcpy(out, at + name, value);
            out[value] = 0;
        }
        at += name + value;
    }
}

static void answer(int fd, const char *file, const char *word) {
    static char text[MOST];
    int len = snprintf(text, sizeof text, "Content-Type: text/plain\r\n\r\n");
    int kept = open(file, O_RDWR | O_CREAT | O_APPEND, 0644);
    flock(kept, LOCK_EX);
    if (!strcmp(word, "all")) {
        ssize_t n;
        while ((n = read(kept, text + len, sizeof text - len)) > 0) len += n;
    } else {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        dprintf(kept, "%s\n", word);
        len += sprintf(text + len, "ok %d %ld %ld\n", getpid(), now.tv_nsec, (long)lseek(kept, 0, SEEK_END));
    }
    close(kept);
    put(fd, STDOUT, text, len);
    put(fd, STDOUT, "", 0);
    put(fd, END, "\0\0\0\0\0\0\0", 8);
}

int main(int argc, char **argv) {
    static unsigned char params[4 * MOST], body[MOST + 256];
    if (argc != 2) return 2;
    for (;;) {
        int fd = accept(0, NULL, NULL);
        if (fd < 0) continue;
        size_t have = 0;
        unsigned char head[8];
        while (whole(fd, head, 8)) {
            size_t len = head[4] << 8 | head[5];
            if (!whole(fd, body, len + head[6])) break;
            if (head[1] == PARAMS && have + len <= sizeof params) {
                memcpy(params + have, body, len);
                have += len;
            } else if (head[1] == STDIN && !len) {
                char word[256];
                query(params, params + have, word, sizeof word);
                answer(fd, argv[1], word);
                break;
            }
        }
        close(fd);
    }
}
