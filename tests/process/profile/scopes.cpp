/* Leaves blocks of 1000 bytes: 30 of scope alice, 20 of bob, which is below her, 10 of none. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include <hakmem/scope.hpp>

static void check(bool good, const char *what)
{
    if (!good) {
        std::fprintf(stderr, "not so: %s\n", what);
        std::exit(1);
    }
}

static void *kept[60], *volatile taken; /* volatile, so that no call is left out */

int main()
{
    hakmem::scope alice("alice", 1 << 20, nullptr, HAK_SCOPE_KEEP), bob("bob", 0, alice.get(), HAK_SCOPE_KEEP);
    unsigned count = 0;

    for (; count < 30; count++) {
        hakmem::within inside(alice);
        kept[count] = std::malloc(1000);
        check(hak_scope_of(kept[count]) == alice.get(), "malloc in a scope is the scope's");
    }
    for (; count < 50; count++) {
        hakmem::within inside(alice), deeper(bob);
        kept[count] = new char[1000];
        check(hak_scope_of(kept[count]) == bob.get(), "so is new");
    }
    for (; count < 60; count++)
        kept[count] = std::malloc(1000);

    /* An exception leaves the scopes, and what it carries belongs to one. Over the cap new throws. */
    std::size_t before = alice.stats().live;
    try {
        hakmem::within inside(bob);
        taken = ::operator new(2 << 20);
        check(false, "new throws over a cap");
    } catch (const std::bad_alloc &) {
        check(hak_scope_current() == nullptr, "an exception leaves the scope");
    }
    try {
        hakmem::within inside(bob);
        throw std::runtime_error(std::string(500, 'x'));
    } catch (const std::runtime_error &error) {
        check(std::strlen(error.what()) == 500 && alice.stats().live > before, "the exception is bob's");
    }
    check(alice.stats().live == before, "and freed");

    char *words = nullptr;
    {
        hakmem::within inside(alice), outside(nullptr);
        words = strdup("shared by all");
    }
    check(hak_scope_of(words) == nullptr, "what is made outside is nobody's");
    std::free(words);

    hakmem::scope moved(std::move(bob));
    check(bob.get() == nullptr && std::strcmp(moved.stats().name, "bob") == 0, "a scope moves");
    try {
        hakmem::scope bad("");
        check(false, "no scope without a name");
    } catch (const std::system_error &error) {
        check(error.code().value() == EINVAL, "EINVAL");
    }
    std::puts("done");
}
