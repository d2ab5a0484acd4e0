// Keeps what one function allocates and frees what another allocates, in known amounts.
#include <cstdlib>
#include <memory>
#include <vector>

namespace barn {

__attribute__((noinline)) void *keep_hay(std::size_t size)
{
    return std::malloc(size);
}

__attribute__((noinline)) void *burn_straw(std::size_t size)
{
    return std::malloc(size);
}

} // namespace barn

int main()
{
    std::vector<void *> kept;
    kept.reserve(20000);
    for (int i = 0; i < 20000; i++) {
        kept.push_back(barn::keep_hay(1000));
        for (int n = 0; n < 4; n++)
            std::free(barn::burn_straw(1000));
    }
    return kept.size() == 20000 ? 0 : 1;
}
