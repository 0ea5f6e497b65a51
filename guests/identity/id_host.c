/* Who is logged in and which host this is: the same on all replicas, whatever it is.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    char name[256];
    int rc = getlogin_r(name, sizeof name);
    note("getlogin %s, getlogin_r %d", getlogin() ? "knows" : "does not know", rc);
    CHECK((rc == 0) == (getlogin() != NULL));
    note("gethostid %lx", gethostid());
    CHECK(gethostid() == gethostid());
    say("asked");
    return 0;
}
