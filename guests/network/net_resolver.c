/* A name server that does not answer: getaddrinfo fails as it does natively, and does not hang.
 *
 * expect: same
 */
#include "guest.h"
#include <netdb.h>
#include <resolv.h>

int main(void)
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *list = NULL;
    CHECK(res_init() == 0);
    /* An address for documentation: no host has it. */
    _res.nscount = 1;
    _res.nsaddr_list[0].sin_family = AF_INET;
    _res.nsaddr_list[0].sin_port = htons(53);
    CHECK(inet_pton(AF_INET, "192.0.2.1", &_res.nsaddr_list[0].sin_addr) == 1);
    _res.retrans = 1;
    _res.retry = 1;
    CHECK(getaddrinfo("name.example", "80", &hints, &list) == EAI_AGAIN && list == NULL);
    say("try again");
    return 0;
}
