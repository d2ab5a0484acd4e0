/*
 * Standard allocators (C++17 20.5.3.5): hakmem::allocator<T> over the process's memory, hakmem::heap_allocator<T>
 * over a first-class heap. They serve any T, also an over-aligned one. heap.hpp says what they do when memory is out,
 * and what deallocate checks.
 *
 * allocate_at_least, of C++23, returns the number of elements that the whole block holds. deallocate accepts any number
 * from the requested to the returned one. C++17 and C++20 have the function, too, for callers that know of it.
 */
#ifndef HAKMEM_ALLOCATOR_HPP
#define HAKMEM_ALLOCATOR_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include <hakmem/heap.hpp>

namespace hakmem {

#if defined(__cpp_lib_allocate_at_least)
template <class Pointer> using allocation_result = std::allocation_result<Pointer>;
#else
template <class Pointer> struct allocation_result {
    Pointer ptr;
    std::size_t count;
};
#endif

/* Not for programs. */
namespace detail {

/* Throws std::bad_array_new_length if the number of bytes overflows. */
template <class T> std::size_t bytes_of(std::size_t count)
{
    if (__builtin_expect(count > SIZE_MAX / sizeof(T), 0))
        throw_or_abort<std::bad_array_new_length>();
    return count * sizeof(T);
}

template <class T> allocation_result<T *> whole_block(T *block) noexcept
{
    return { block, hak_usable_size(block) / sizeof(T) };
}

} // namespace detail

/* Stateless: any such allocator frees the blocks of any other. Any thread. */
template <class T> class allocator {
public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_move_assignment = std::true_type;
    using is_always_equal = std::true_type;

    constexpr allocator() noexcept = default;
    template <class U> constexpr allocator(const allocator<U> &) noexcept {}

    [[nodiscard]] T *allocate(std::size_t count)
    {
        return static_cast<T *>(detail::allocate(detail::bytes_of<T>(count), alignof(T)));
    }

    [[nodiscard]] allocation_result<T *> allocate_at_least(std::size_t count)
    {
        return detail::whole_block(allocate(count));
    }

    void deallocate(T *block, std::size_t count) noexcept { detail::deallocate(block, count * sizeof(T), alignof(T)); }
};

template <class T, class U> constexpr bool operator==(const allocator<T> &, const allocator<U> &) noexcept
{
    return true;
}

template <class T, class U> constexpr bool operator!=(const allocator<T> &, const allocator<U> &) noexcept
{
    return false;
}

/*
 * Allocates in one heap, which must outlive the blocks. Allocators are equal if their heaps are the same. Any thread,
 * under the heap's lock.
 *
 * A container keeps its heap when it is assigned to, because the other container's heap may end first. If the heaps
 * differ, elements move one by one. A copy of a container is in the same heap. A swap exchanges heaps with their
 * blocks: the standard leaves it undefined for unequal allocators that stay.
 */
template <class T> class heap_allocator {
public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using propagate_on_container_copy_assignment = std::false_type;
    using propagate_on_container_move_assignment = std::false_type;
    using propagate_on_container_swap = std::true_type;
    using is_always_equal = std::false_type;

    /* A heap of the C interface, not null. */
    heap_allocator(hak_heap_t *heap) noexcept : handle(heap) {}
    /* Throws std::bad_alloc, as heap::get() does. */
    heap_allocator(heap &owner) : handle(owner.get()) {}
    template <class U> heap_allocator(const heap_allocator<U> &other) noexcept : handle(other.get()) {}

    [[nodiscard]] T *allocate(std::size_t count)
    {
        return static_cast<T *>(detail::allocate(handle, detail::bytes_of<T>(count), alignof(T)));
    }

    [[nodiscard]] allocation_result<T *> allocate_at_least(std::size_t count)
    {
        return detail::whole_block(allocate(count));
    }

    void deallocate(T *block, std::size_t count) noexcept
    {
        detail::deallocate_checked(block, count * sizeof(T), alignof(T));
    }

    hak_heap_t *get() const noexcept { return handle; }

private:
    hak_heap_t *handle;
};

template <class T, class U> bool operator==(const heap_allocator<T> &left, const heap_allocator<U> &right) noexcept
{
    return left.get() == right.get();
}

template <class T, class U> bool operator!=(const heap_allocator<T> &left, const heap_allocator<U> &right) noexcept
{
    return left.get() != right.get();
}

} // namespace hakmem

#endif
