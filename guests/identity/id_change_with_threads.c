/* Changing ids while other threads exist: libc signals each kernel thread; that must neither hang nor be visible.
 *
 * expect: same
 */
#define _GNU_SOURCE
#include "guest.h"
#include <grp.h>
#include <unistd.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *blocked(void *arg)
{
    (void)arg;
    CHECK(pthread_mutex_lock(&held) == 0);
    CHECK(getuid() == geteuid());
    CHECK(pthread_mutex_unlock(&held) == 0);
    return NULL;
}

int main(void)
{
    uid_t user = getuid();
    gid_t group = getgid();
    CHECK(pthread_mutex_lock(&held) == 0);
    pthread_t other = spawn(blocked, NULL);
    sleep_ms(5);
    CHECK(setresgid(group, group, group) == 0);
    CHECK(setegid(group) == 0);
    CHECK(setregid(group, group) == 0);
    CHECK(setgid(group) == 0);
    CHECK(setresuid(user, user, user) == 0);
    CHECK(seteuid(user) == 0);
    CHECK(setreuid(user, user) == 0);
    CHECK(setuid(user) == 0);
    say("ids set");
    CHECK(pthread_mutex_unlock(&held) == 0);
    CHECK(pthread_join(other, NULL) == 0);
    say("done");
    return 0;
}
