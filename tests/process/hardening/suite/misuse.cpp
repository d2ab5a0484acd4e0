// Misuse of the C++ operators (scene.h), and of pairs of functions that do not belong together, which C does not have.
#include <new>

#include "scene.h"

static char *take(size_t bytes) { return static_cast<char *>(::operator new(bytes)); }
static void give(void *block) { ::operator delete(block); }

namespace {

char *gone()
{
    char *block = hide(victim);
    victim = nullptr;
    return block;
}

// Replaces the scene's block, from operator new, by one from another function.
void by_array() { victim = static_cast<char *>(::operator new[](size)); }
void by_malloc() { victim = static_cast<char *>(malloc(size)); }
void by_aligned_new() { victim = static_cast<char *>(::operator new(size, std::align_val_t(4096))); }

void delete_array() { ::operator delete[](gone()); }
void delete_plain() { ::operator delete(gone()); }
void free_new() { free(gone()); }
void delete_larger() { ::operator delete(gone(), size * 4); }
void delete_smaller() { ::operator delete(gone(), size / 4); }
void delete_aligned() { ::operator delete(gone(), std::align_val_t(1 << 21)); }

const kind OWN[] = {
    { "new-delete[]", nullptr, delete_array, nullptr },
    { "new[]-delete", by_array, delete_plain, nullptr },
    { "malloc-delete", by_malloc, delete_plain, nullptr },
    { "malloc-delete[]", by_malloc, delete_array, nullptr },
    { "new-free", nullptr, free_new, nullptr },
    { "new[]-free", by_array, free_new, nullptr },
    { "delete-larger", nullptr, delete_larger, nullptr },
    { "delete-smaller", nullptr, delete_smaller, nullptr },
    { "delete-aligned", nullptr, delete_aligned, nullptr },
    { "aligned-delete", by_aligned_new, delete_plain, nullptr },
};

} // namespace

static const struct kind *own_kinds(const char *name)
{
    for (const kind &each : OWN)
        if (!strcmp(each.name, name))
            return &each;
    return nullptr;
}
