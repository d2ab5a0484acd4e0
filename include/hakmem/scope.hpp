/*
 * hakmem::scope owns a scope (scope.h): a tenant with a cap. hakmem::within keeps the thread in one for a block of
 * code.
 *
 *     hakmem::scope tenant("alice", 64 << 20);
 *     hakmem::within inside(tenant);
 *
 * Header-only, needs C++17 or newer, and calls the public C interface alone. With -fno-exceptions a throw is
 * std::abort().
 */
#ifndef HAKMEM_SCOPE_HPP
#define HAKMEM_SCOPE_HPP

#include <cerrno>
#include <cstdlib>
#include <new>
#include <system_error>
#include <utility>

#include <hakmem/heap.hpp>
#include <hakmem/scope.h>

namespace hakmem {

/* Not for programs. */
namespace detail {

[[noreturn]] inline void scope_failed([[maybe_unused]] int error, [[maybe_unused]] const char *what)
{
#if defined(__cpp_exceptions)
    if (error != ENOMEM)
        throw std::system_error(error, std::generic_category(), what);
#endif
    throw_or_abort<std::bad_alloc>();
}

}

/* Can be moved, not copied. A scope that was moved from has no get(). Its end frees its blocks, or lets them live on,
 * and aborts the process if a thread is in it or a scope below it lives. */
class scope {
public:
    /* cap: bytes, 0: none. parent: a scope that outlives this one, or NULL. Throws std::bad_alloc, or std::system_error
     * with the errors of hak_scope_new. */
    explicit scope(const char *name, std::size_t cap = 0, hak_scope_t *parent = nullptr,
                   hak_scope_blocks at_end = HAK_SCOPE_FREE)
        : scope_(hak_scope_new(name, parent, cap)), at_end_(at_end)
    {
        if (scope_ == nullptr)
            detail::scope_failed(errno, "hak_scope_new");
    }

    scope(scope &&other) noexcept : scope_(std::exchange(other.scope_, nullptr)), at_end_(other.at_end_) {}
    scope &operator=(scope &&other) noexcept
    {
        std::swap(scope_, other.scope_);
        std::swap(at_end_, other.at_end_);
        return *this;
    }

    ~scope()
    {
        if (hak_scope_destroy(scope_, at_end_) != 0)
            std::abort();
    }

    hak_scope_t *get() const noexcept { return scope_; }

    /* As hak_scope_get. All 0 if the library tells less. */
    hak_scope_stats stats() const noexcept
    {
        hak_scope_stats stats{};
        (void)hak_scope_get(scope_, &stats, sizeof stats);
        return stats;
    }

private:
    hak_scope_t *scope_;
    hak_scope_blocks at_end_;
};

/* The thread that makes it is in the scope until its end; NULL: in none. Ends in that thread, the last one first. */
class within {
public:
    /* Throws std::bad_alloc, or std::system_error with the errors of hak_scope_enter. */
    explicit within(hak_scope_t *scope) : scope_(scope)
    {
        int error = hak_scope_enter(scope);
        if (error != 0)
            detail::scope_failed(error, "hak_scope_enter");
    }
    explicit within(const scope &scope) : within(scope.get()) {}
    ~within() { hak_scope_leave(scope_); }

    within(const within &) = delete;
    within &operator=(const within &) = delete;

private:
    hak_scope_t *scope_;
};

}

#endif
