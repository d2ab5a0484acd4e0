// C++ thread-local objects, which are destroyed at thread exit and process exit, and allocate in their destructors.
#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>

struct Owner {
    std::map<int, std::string> map;
    std::vector<std::string> list;
    ~Owner()
    {
        std::vector<std::string> last;
        for (auto &row : map)
            last.push_back(row.second + std::string(200, 'z'));
        list.swap(last);
    }
};

static thread_local Owner first;
static thread_local std::vector<std::vector<char>> second;
static Owner at_exit;

static void use(int n)
{
    for (int i = 0; i < 100; i++) {
        first.map[i] = std::string((std::size_t)(n * i % 500), 'a');
        second.emplace_back((std::size_t)(i * 50), 'b');
    }
}

int main()
{
    use(1);
    at_exit.map[1] = std::string(1000, 'c');
    for (int round = 0; round < 60; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; i++)
            threads.emplace_back(use, round + i);
        for (auto &thread : threads)
            thread.join();
        // Some threads outlive their handle.
        std::thread(use, 3).detach();
    }
    std::puts("done");
}
