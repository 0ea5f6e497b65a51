/* A system call that is in no table: refused by its number, by inline assembly and through syscall().
 *
 * expect: same
 * refused: system call 999
 */
#include "raw.h"

int main(void)
{
    CHECK(raw3(999, 1, 2, 3) == -ENOSYS);
    CHECK(syscall(999, 1, 2, 3) == -1 && errno == ENOSYS);
    CHECK(raw3(423, 0, 0, 0) == -ENOSYS && raw3(-1, 0, 0, 0) == -ENOSYS);
    say("unknown numbers do not exist");
    return 0;
}
