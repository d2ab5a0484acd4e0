/* A typical C++ program: maps of strings, growing vectors, a sort. It frees everything. */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

int main(int count, char **words)
{
    std::unordered_map<std::string, std::vector<int>> lists;
    std::map<std::string, std::string> texts;
    unsigned seed = 1;
    long long sum = 0;

    for (int i = 0, rounds = count > 1 ? atoi(words[1]) : 0; i < rounds; i++) {
        seed = seed * 1664525u + 1013904223u;
        std::string key = "a-key-that-is-long-" + std::to_string(seed % 50000);
        std::vector<int> &list = lists[key];
        list.push_back(i);
        if (list.size() > 20) {
            list.clear();
            list.shrink_to_fit();
        }
        if (i % 4 == 0)
            texts[key] = std::string(seed % 200, 'x');
        if (i % 7 == 0 && !texts.empty())
            texts.erase(texts.begin());
        std::vector<int> copy(list);
        std::sort(copy.begin(), copy.end(), [](int one, int other) { return one * 2654435761u < other * 2654435761u; });
        for (int value : copy)
            sum += value;
    }
    printf("%zu %zu %lld\n", lists.size(), texts.size(), sum);
}
