/* A server driven from outside, of several processes and threads, that lives on its files: two workers have two threads each, which are connected to the parent by a
 * UNIX socket with a path, and keep what they are told in files. These grow, are given other names, linked and removed; a request is answered with what is said about them.
 * An answer is 32 bytes longer than the request. "quit\n" ends all with status 0.
 *
 * expect: same
 * clients 6: open, 8 times (ask "put {client} {n}\n" for +32), fin, closed
 */
#include "guest.h"
#include <dirent.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { WORKERS = 2, THREADS = 2, LANES = WORKERS * THREADS };

static int lanes[LANES], next_lane;
static pthread_mutex_t picks = PTHREAD_MUTEX_INITIALIZER, busy[LANES];
static int worker, requests;
static pthread_mutex_t counts = PTHREAD_MUTEX_INITIALIZER;

static int control(int listens)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "store/control"};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    if (listens)
        CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, LANES) == 0);
    else
        CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

/* One line of a request, up to its end. */
static ssize_t read_line(int fd, char *line, size_t size)
{
    size_t used = 0;
    while (used < size) {
        ssize_t n = read(fd, line + used, 1);
        if (n <= 0)
            return n;
        if (line[used++] == '\n')
            return (ssize_t)used;
    }
    return -1;
}

static void *keeps(void *arg)
{
    int lane = (int)(intptr_t)arg, fd = control(0), count = 0;
    char path[64], old[64], line[128], said[128], answer[256];
    snprintf(path, sizeof path, "store/data-%d-%d", worker, lane);
    snprintf(old, sizeof old, "store/old-%d-%d", worker, lane);
    int file = open(path, O_RDWR | O_CREAT | O_APPEND, 0640);
    CHECK(file >= 0);
    ssize_t n;
    while ((n = read_line(fd, line, sizeof line)) > 0) {
        struct stat about, other;
        write_all(file, line, (size_t)n);
        CHECK(pthread_mutex_lock(&counts) == 0);
        int all = ++requests;
        CHECK(pthread_mutex_unlock(&counts) == 0);
        if (++count % 4 == 0) {
            /* The log begins anew, and the one before stays under another name. */
            CHECK(rename(path, old) == 0 && close(file) == 0);
            file = open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND, 0640);
            CHECK(file >= 0);
        }
        if (count % 4 == 2) {
            unlink("store/last");
            CHECK(link(path, "store/last") == 0 || errno == EEXIST);
        }
        CHECK(fstat(file, &about) == 0 && stat(path, &other) == 0);
        CHECK(about.st_ino == other.st_ino && about.st_dev == other.st_dev);
        memcpy(answer, line, (size_t)n);
        memset(answer + n, '.', 32);
        int used = snprintf(said, sizeof said, "%ld %ld %d %d", (long)about.st_ino, (long)about.st_size, all, count);
        memcpy(answer + n, said, used < 32 ? (size_t)used : 32);
        write_all(fd, answer, (size_t)n + 32);
    }
    CHECK(close(file) == 0 && close(fd) == 0);
    return NULL;
}

static void work(int number)
{
    worker = number;
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = spawn(keeps, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    _exit(requests > 0 ? 0 : 1);
}

static void finish(void)
{
    int status, entries = 0;
    for (int i = 0; i < LANES; i++)
        CHECK(shutdown(lanes[i], SHUT_RDWR) == 0);
    for (int i = 0; i < WORKERS; i++)
        CHECK(wait(&status) > 0 && status == 0);
    DIR *store = opendir("store");
    CHECK(store != NULL);
    for (struct dirent *entry; (entry = readdir(store)) != NULL;) {
        struct stat about;
        char path[300];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "store/%s", entry->d_name);
        CHECK(stat(path, &about) == 0);
        note("%s %ld %ld", entry->d_name, (long)about.st_ino, (long)about.st_size);
        entries++;
    }
    CHECK(closedir(store) == 0);
    say("%s", entries > LANES ? "kept" : "lost");
    exit(0);
}

static void *serve(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char line[128], answer[256];
    ssize_t n;
    while ((n = read_line(fd, line, sizeof line)) > 0) {
        if (n == 5 && memcmp(line, "quit\n", 5) == 0)
            finish();
        CHECK(pthread_mutex_lock(&picks) == 0);
        int lane = next_lane++ % LANES;
        CHECK(pthread_mutex_unlock(&picks) == 0);
        CHECK(pthread_mutex_lock(&busy[lane]) == 0);
        write_all(lanes[lane], line, (size_t)n);
        read_exact(lanes[lane], answer, (size_t)n + 32);
        CHECK(pthread_mutex_unlock(&busy[lane]) == 0);
        write_all(fd, answer, (size_t)n + 32);
    }
    CHECK(close(fd) == 0);
    return NULL;
}

int main(int argc, char **argv)
{
    int listener = server_listen(argc, argv, 0);
    CHECK(mkdir("store", 0750) == 0 && mkfifo("store/queue", 0600) == 0);
    int unix_listener = control(1);
    for (int i = 0; i < WORKERS; i++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            CHECK(close(listener) == 0 && close(unix_listener) == 0);
            work(i);
        }
    }
    for (int i = 0; i < LANES; i++) {
        lanes[i] = accept(unix_listener, NULL, NULL);
        CHECK(lanes[i] >= 0 && pthread_mutex_init(&busy[i], NULL) == 0);
    }
    serve_by_threads(listener, serve);
}
