/* Calls that libc makes inside itself: directories, streams, threads. Natively and replaced they do the same.
 * Libc's places: nine for directories and streams, five for the births and ends of threads.
 *
 * expect: same
 * net: 14 of libc, 4200 executions
 */
#include "patch.h"
#include <dirent.h>
#include <sys/stat.h>

static void *body(void *arg)
{
    return arg;
}

int main(void)
{
    char directory[] = "/mnt/patch_libcXXXXXX", path[64], text[8], resolved[4096];
    CHECK(mkdtemp(directory) != NULL);
    snprintf(path, sizeof path, "%s/file", directory);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs("text", file) >= 0 && fclose(file) == 0);
    for (int i = 0; i < OFTEN; i++) {
        DIR *list = opendir(directory);
        int entries = 0;
        CHECK(list != NULL);
        while (readdir(list) != NULL)
            entries++;
        CHECK(closedir(list) == 0 && entries == 3);
        file = fopen(path, "r");
        CHECK(file != NULL && fgets(text, sizeof text, file) != NULL && strcmp(text, "text") == 0);
        CHECK(fclose(file) == 0);
        CHECK(realpath(path, resolved) != NULL && strcmp(resolved, path) == 0);
        CHECK(join(spawn(body, &entries)) == &entries);
    }
    CHECK(unlink(path) == 0 && rmdir(directory) == 0);
    say("again and again");
    return 0;
}
