/* Fragments the heap: a few long-lived blocks stay between many short-lived ones. Says "ready" when it holds what it
 * keeps, waits until its standard input ends, and exits without freeing anything. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

struct Block {
    char bytes[1000];
};

__attribute__((noinline)) static Block *open_session()
{
    auto *session = new Block;
    memset(session, 1, sizeof *session);
    return session;
}

__attribute__((noinline)) static Block *read_request()
{
    auto *request = new Block;
    memset(request, 2, sizeof *request);
    return request;
}

/* Reserves memory that it never writes. */
__attribute__((noinline)) static void reserve_buffer(std::vector<char> &buffer)
{
    buffer.reserve(4 << 20);
}

int main()
{
    std::vector<Block *> sessions, requests;
    for (int i = 0; i < 128000; i++)
        if (i % 64 == 0)
            sessions.push_back(open_session());
        else
            requests.push_back(read_request());
    for (Block *request : requests)
        delete request;
    std::vector<char> buffers[8];
    for (auto &buffer : buffers)
        reserve_buffer(buffer);
    puts("ready");
    fflush(stdout);
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
    exit(0);
}
