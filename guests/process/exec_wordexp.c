/* wordexp: the shell's work, by a program that it executes.
 *
 * expect: same
 */
#include "guest.h"
#include <wordexp.h>

static void expand(const char *words, int flags)
{
    wordexp_t found;
    int rc = wordexp(words, &found, flags);
    printf("%s: %d", words, rc);
    if (rc == 0) {
        for (size_t i = 0; i < found.we_wordc; i++)
            printf(" <%s>", found.we_wordv[i]);
        wordfree(&found);
    }
    putchar('\n');
}

int main(void)
{
    CHECK(setenv("SKEIN_WORD", "a b", 1) == 0);
    expand("one 'two three' $SKEIN_WORD \"$SKEIN_WORD\"", 0);
    expand("$((6 * 7)) /etc/host[s]", 0);
    expand("$(echo from a shell; echo again)", 0);
    expand("$(exit 3)", 0);
    expand("$(echo no)", WRDE_NOCMD);
    expand("a | b", 0);
    expand("$SKEIN_NOTHING", WRDE_UNDEF);
    return 0;
}
