// One page over HTTP/1.1, kept in memory by std::threads, one a connection: PUT replaces it piece after piece, each
// under the page's lock and with some work on it; GET answers what is there. So a GET beside a PUT sees some of the new page and some
// of the old one: how much, the order of the threads and of what comes in decides. Standard output has a line for each answer.
//
//     page_threads PORT
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t pieces = 64;
constexpr int work = 500;

std::mutex page_lock;
std::vector<std::string> page(pieces, "-");
std::mutex out_lock;
volatile std::uint64_t worked;

std::uint64_t mix(std::uint64_t sum, const std::string &bytes)
{
    for (unsigned char byte : bytes)
        sum = (sum ^ byte) * 0x100000001b3u;
    return sum;
}

// What a real server would do with a piece: compress it, say.
void compute(const std::string &piece)
{
    std::uint64_t sum = 0xcbf29ce484222325u;
    for (int i = 0; i < work; i++)
        sum = mix(sum, piece);
    worked = sum;
}

void put(const std::string &body)
{
    for (std::size_t i = 0; i < pieces; i++) {
        std::string piece = body.substr(i * body.size() / pieces, body.size() / pieces);
        compute(piece);
        {
            std::lock_guard lock(page_lock);
            page[i] = piece;
        }
        std::this_thread::yield();
    }
}

std::string get()
{
    std::vector<std::string> seen;
    {
        std::lock_guard lock(page_lock);
        seen = page;
    }
    std::string all;
    for (const std::string &piece : seen) {
        compute(piece);
        all += piece;
        std::this_thread::yield();
    }
    return all;
}

class Connection {
public:
    explicit Connection(int fd) : fd(fd) {}
    ~Connection() { close(fd); }
    Connection(const Connection &) = delete;
    Connection &operator=(const Connection &) = delete;

    void serve()
    {
        std::string head;
        while (read_head(head)) {
            std::string method = head.substr(0, head.find(' '));
            std::string path = head.substr(method.size() + 1);
            path = path.substr(0, path.find(' '));
            std::string body, answer;
            if (!read_body(head, body))
                return;
            if (method == "PUT")
                put(body);
            else
                answer = get();
            {
                std::lock_guard lock(out_lock);
                std::cout << method << ' ' << path << ' ' << std::hex << mix(0xcbf29ce484222325u, answer) << std::dec << std::endl;
            }
            std::string reply = "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(answer.size()) + "\r\n\r\n" + answer;
            if (send(fd, reply.data(), reply.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(reply.size()))
                return;
        }
    }

private:
    bool more()
    {
        char buffer[16384];
        ssize_t n = recv(fd, buffer, sizeof buffer, 0);
        if (n > 0)
            got.append(buffer, static_cast<std::size_t>(n));
        return n > 0;
    }

    bool read_head(std::string &head)
    {
        std::size_t end;
        while ((end = got.find("\r\n\r\n")) == std::string::npos)
            if (!more())
                return false;
        head = got.substr(0, end);
        got.erase(0, end + 4);
        return true;
    }

    bool read_body(const std::string &head, std::string &body)
    {
        std::size_t at = head.find("Content-Length: ");
        std::size_t length = at == std::string::npos ? 0 : std::stoul(head.substr(at + 16));
        while (got.size() < length)
            if (!more())
                return false;
        body = got.substr(0, length);
        got.erase(0, length);
        return true;
    }

    int fd;
    std::string got;
};

} // namespace

int main(int argc, char **argv)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(argc > 1 ? std::atoi(argv[1]) : 0));
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0 || listen(listener, 128) != 0) {
        std::perror("page_threads");
        return 1;
    }
    for (;;) {
        int fd = accept(listener, nullptr, nullptr);
        if (fd < 0)
            return 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        std::thread([connection = std::make_shared<Connection>(fd)] { connection->serve(); }).detach();
    }
}
