/* localtime, gmtime, strftime and mktime of the current time: consistent with time(); the date goes to standard error.
 *
 * expect: same
 */
#include "guest.h"

int main(void)
{
    time_t now = time(NULL);
    struct tm utc, local;
    char text[64];
    CHECK(gmtime_r(&now, &utc) != NULL && localtime_r(&now, &local) != NULL);
    CHECK(timegm(&utc) == now);
    CHECK(mktime(&local) == now);
    CHECK(strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &utc) == 19);
    CHECK(utc.tm_year + 1900 >= 2024);
    note("%s", text);
    say("round trip");
    return 0;
}
