/*
 * Memory resources (C++17 23.12): hakmem::process_resource() over the process's memory, hakmem::heap_resource over a
 * first-class heap that it owns, hakmem::borrowed_heap_resource over a heap that it does not own. heap.hpp says what
 * they do when memory is out, and what deallocate checks.
 *
 * Resources are equal if their blocks live and die together: all over the process's memory, and all over one heap. The
 * comparison needs dynamic_cast. In a translation unit without it (-fno-rtti) a resource equals only itself.
 */
#ifndef HAKMEM_MEMORY_RESOURCE_HPP
#define HAKMEM_MEMORY_RESOURCE_HPP

#include <cstddef>
#include <memory_resource>
#include <new>

#include <hakmem/heap.hpp>

namespace hakmem {

/* Not for programs. */
namespace detail {

/* Null: the other resource is no T, or there is no dynamic_cast. */
template <class T> const T *as(const std::pmr::memory_resource &other) noexcept
{
#if defined(__cpp_rtti)
    return dynamic_cast<const T *>(&other);
#else
    (void)other;
    return nullptr;
#endif
}

class process_memory_resource : public std::pmr::memory_resource {
    using free_function = decltype(&hak_free);

    void *do_allocate(std::size_t size, std::size_t alignment) override { return detail::allocate(size, alignment); }

    void do_deallocate(void *block, std::size_t size, std::size_t alignment) override
    {
        detail::deallocate(block, size, alignment);
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        const auto *process = as<process_memory_resource>(other);
        return &other == this || (process != nullptr && process->frees_by() == frees_by());
    }

    /* Tells copies of HAKMEM apart: each object of a process may have one, linked statically. */
    virtual free_function frees_by() const noexcept { return hak_free; }
};

class any_heap_resource : public std::pmr::memory_resource {
    void do_deallocate(void *block, std::size_t size, std::size_t alignment) final
    {
        detail::deallocate_checked(block, size, alignment);
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept final
    {
        const auto *heap = as<any_heap_resource>(other);
        return &other == this || (heap != nullptr && heap->now() != nullptr && heap->now() == now());
    }

    /* The heap, or null if there is none at present. */
    virtual hak_heap_t *now() const noexcept = 0;
};

} // namespace detail

/* The process's memory. One object, never destroyed; any thread, at any time. */
inline std::pmr::memory_resource *process_resource() noexcept
{
    alignas(detail::process_memory_resource) static unsigned char place[sizeof(detail::process_memory_resource)];
    static std::pmr::memory_resource *const resource = ::new (place) detail::process_memory_resource;

    return resource;
}

/*
 * Owns a heap, which the first allocation makes. Unlike std::pmr::monotonic_buffer_resource it reuses deallocated
 * blocks, and release() returns memory to the process, where other threads, heaps and malloc may use it. Any thread may
 * allocate and deallocate, under the heap's lock. No other thread may use the resource or its blocks during release()
 * and the destructor.
 */
class heap_resource : public detail::any_heap_resource {
public:
    heap_resource() noexcept = default;
    heap_resource(const heap_resource &) = delete;
    heap_resource &operator=(const heap_resource &) = delete;

    /* Frees all blocks at once, whether they were deallocated or not. The resource may be used again. */
    void release() noexcept { owned.release(); }

    /* The heap, for the C interface, heap_allocator or borrowed_heap_resource; the same until release(). Throws
     * std::bad_alloc. */
    hak_heap_t *get() { return owned.get(); }

private:
    void *do_allocate(std::size_t size, std::size_t alignment) override
    {
        return detail::allocate(owned.get(), size, alignment);
    }

    hak_heap_t *now() const noexcept override { return owned.peek(); }

    heap owned;
};

/* Over a heap, which must outlive the resource's last call. Any thread, under the heap's lock. */
class borrowed_heap_resource : public detail::any_heap_resource {
public:
    /* Not null. */
    explicit borrowed_heap_resource(hak_heap_t *heap) noexcept : handle(heap) {}

    hak_heap_t *get() const noexcept { return handle; }

private:
    void *do_allocate(std::size_t size, std::size_t alignment) override
    {
        return detail::allocate(handle, size, alignment);
    }

    hak_heap_t *now() const noexcept override { return handle; }

    hak_heap_t *handle;
};

} // namespace hakmem

#endif
