/*
 * hakmem::heap owns a first-class heap (hakmem.h): blocks that live and die together.
 *
 * allocator.hpp and memory_resource.hpp are built on this file. All three are header-only, need C++17 or newer, and
 * call the public C interface alone. docs/cxx.md has examples.
 *
 * When memory is out, every function of these headers that allocates does what operator new does (C++17
 * 21.6.2.1): it calls the new-handler and tries again, and throws std::bad_alloc when there is no new-handler. A
 * translation unit without exceptions (-fno-exceptions) calls std::abort() in place of a throw.
 *
 * HAK_CHECK_SIZES=1, defined before the first of these headers, makes each deallocation in the process's memory
 * check that the block can be of the size and alignment that the caller gives. A block that cannot be is misuse
 * (docs/misuse.md). The check takes five instructions, some tenths of a nanosecond. Blocks of heaps are always checked,
 * because the check costs nothing beside the heap's lock. All parts of a program must define it alike.
 */
#ifndef HAKMEM_HEAP_HPP
#define HAKMEM_HEAP_HPP

#if __cplusplus < 201703L
#error "hakmem/heap.hpp, allocator.hpp and memory_resource.hpp need C++17 or newer"
#endif

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

#include <hakmem/hakmem.h>

#ifndef HAK_CHECK_SIZES
#define HAK_CHECK_SIZES 0
#endif

namespace hakmem {

/* Not for programs. */
namespace detail {

/* Every block has this alignment (hakmem.h). */
inline constexpr std::size_t block_alignment = 16;

template <class Exception> [[noreturn]] void throw_or_abort()
{
#if defined(__cpp_exceptions)
    throw Exception();
#else
    std::abort();
#endif
}

/* Goes on when `attempt` has failed once. */
template <class Attempt> [[gnu::cold, gnu::noinline]] auto after_failure(Attempt attempt)
{
    for (;;) {
        std::new_handler handler = std::get_new_handler();
        if (handler == nullptr)
            throw_or_abort<std::bad_alloc>();
        handler();
        if (auto *got = attempt())
            return got;
    }
}

template <class Attempt> auto or_throw(Attempt attempt)
{
    auto *got = attempt();
    return __builtin_expect(got != nullptr, 1) ? got : after_failure(attempt);
}

/* Alignments are powers of two. */

inline void *allocate(std::size_t size, std::size_t alignment)
{
    return or_throw(
        [=] { return alignment <= block_alignment ? hak_malloc(size) : hak_aligned_alloc(alignment, size); });
}

inline void *allocate(hak_heap_t *heap, std::size_t size, std::size_t alignment)
{
    return or_throw([=] {
        return alignment <= block_alignment ? hak_heap_malloc(heap, size)
                                            : hak_heap_aligned_alloc(heap, alignment, size);
    });
}

inline void deallocate_checked(void *block, std::size_t size, std::size_t alignment) noexcept
{
    if (alignment <= block_alignment)
        hak_free_sized(block, size);
    else
        hak_free_aligned_sized(block, alignment, size);
}

inline void deallocate(void *block, std::size_t size, std::size_t alignment) noexcept
{
    if (HAK_CHECK_SIZES)
        deallocate_checked(block, size, alignment);
    else
        hak_free(block);
}

} // namespace detail

/*
 * The first call of get() makes the first-class heap. Until then the object costs nothing, and one with static storage
 * duration is initialised by the compiler.
 *
 * Any thread may call get() and use its result. No other thread may use the heap or its blocks during release() and
 * the destructor.
 */
class heap {
public:
    constexpr heap() noexcept = default;
    heap(const heap &) = delete;
    heap &operator=(const heap &) = delete;
    ~heap() { release(); }

    /* Never null, and the same until release(). Throws std::bad_alloc. */
    hak_heap_t *get()
    {
        hak_heap_t *found = handle.load(std::memory_order_acquire);
        return __builtin_expect(found != nullptr, 1) ? found : make();
    }

    /* Null: no heap was made, or it was released. */
    hak_heap_t *peek() const noexcept { return handle.load(std::memory_order_acquire); }

    /* Frees all blocks at once. The earlier result of get() is no heap any more. */
    void release() noexcept { hak_heap_destroy(handle.exchange(nullptr, std::memory_order_acq_rel)); }

private:
    /* If several threads make a heap at once, the first one's is kept. */
    [[gnu::cold, gnu::noinline]] hak_heap_t *make()
    {
        hak_heap_t *made = detail::or_throw([] { return hak_heap_new(); }), *found = nullptr;

        if (handle.compare_exchange_strong(found, made, std::memory_order_acq_rel, std::memory_order_acquire))
            return made;
        hak_heap_destroy(made);
        return found;
    }

    std::atomic<hak_heap_t *> handle{ nullptr };
};

} // namespace hakmem

#endif
