// hakmem/memory_resource.hpp: the three resources with std::pmr's containers and alone.
#include <hakmem/memory_resource.hpp>

#include <list>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common.hpp"

static_assert(noexcept(hakmem::process_resource()));
static_assert(std::is_nothrow_default_constructible_v<hakmem::heap_resource>);
static_assert(!std::is_copy_constructible_v<hakmem::heap_resource> &&
              !std::is_copy_assignable_v<hakmem::heap_resource>);
static_assert(!std::is_convertible_v<hak_heap_t *, hakmem::borrowed_heap_resource>);

// Constructed before the process's resource and destroyed last: the resource works even then.
struct Late {
    std::pmr::memory_resource *resource = nullptr;
    ~Late()
    {
        std::pmr::vector<int> last(1000, 5, resource);
        check(hak_usable_size(last.data()) >= 4000 && resource->is_equal(*hakmem::process_resource()), "at the end", 0);
        std::puts("late");
    }
};
static Late late;
static std::pmr::vector<int> global_vector(1000, 1, hakmem::process_resource());

// ---- Containers ----

static void containers(std::pmr::memory_resource *resource, hak_heap_t *(*heap_of)(std::pmr::memory_resource *))
{
    std::pmr::map<std::pmr::string, std::pmr::vector<int>> map(resource);
    std::pmr::unordered_map<int, std::pmr::string> table(resource);
    std::pmr::list<std::pmr::string> list(resource);
    for (int i = 0; i < 3000; i++) {
        map["a key longer than a short string " + std::pmr::string(std::to_string(i % 97), resource)].push_back(i);
        table[i].assign(static_cast<std::size_t>(i % 300), 'x');
        list.emplace_front("a text longer than a short string, of a list");
        if (i % 3 == 0)
            table.erase(i / 2);
    }
    std::size_t count = 0;
    for (const auto &[key, values] : map) {
        CHECK(hak_heap_of(key.data()) == heap_of(resource) && hak_heap_of(values.data()) == heap_of(resource));
        count += values.size();
    }
    CHECK(count == 3000 && hak_heap_of(list.front().data()) == heap_of(resource));
}

static hak_heap_t *no_heap(std::pmr::memory_resource *)
{
    return nullptr;
}

static hak_heap_t *owned_heap(std::pmr::memory_resource *resource)
{
    return dynamic_cast<hakmem::heap_resource &>(*resource).get();
}

static void default_resource()
{
    std::pmr::memory_resource *before = std::pmr::set_default_resource(hakmem::process_resource());
    std::pmr::vector<std::pmr::string> texts(10, "a text that is longer than a short string");
    CHECK(hak_usable_size(texts.data()) != 0 && hak_usable_size(texts[9].data()) > texts[9].size());
    std::pmr::set_default_resource(before);
}

static void blocks(std::pmr::memory_resource *resource)
{
    for (std::size_t size = 0; size < 3000000; size = size * 2 + 1) {
        for (std::size_t alignment = 1; alignment <= 65536; alignment *= 4) {
            void *block = resource->allocate(size, alignment), *other = resource->allocate(size, alignment);
            CHECK(block != other && is_aligned(block, alignment) && is_aligned(other, alignment));
            CHECK(hak_usable_size(block) >= size);
            std::memset(block, 1, size);
            resource->deallocate(block, size, alignment);
            resource->deallocate(other, size, alignment);
        }
        void *block = resource->allocate(size);
        CHECK(is_aligned(block, alignof(std::max_align_t)));
        resource->deallocate(block, size);
    }
}

// ---- Equality ----

static bool are_equal(const std::pmr::memory_resource &left, const std::pmr::memory_resource &right)
{
    CHECK(left.is_equal(right) == right.is_equal(left) && (left == right) == left.is_equal(right));
    return left == right;
}

static void equality()
{
    hakmem::heap_resource one, two;
    hakmem::detail::process_memory_resource process; // as another library has one
    CHECK(hakmem::process_resource() == hakmem::process_resource());
    CHECK(are_equal(*hakmem::process_resource(), process));
    CHECK(!are_equal(process, *std::pmr::new_delete_resource()));
    CHECK(are_equal(one, one) && !are_equal(one, two)); // neither has a heap yet
    hakmem::borrowed_heap_resource borrowed(one.get()), same(borrowed.get()), other(two.get());
    CHECK(are_equal(one, borrowed) && are_equal(borrowed, same) && are_equal(two, other));
    CHECK(!are_equal(one, two) && !are_equal(one, other) && !are_equal(borrowed, other));
    CHECK(!are_equal(one, process) && !are_equal(borrowed, process));
    CHECK(!are_equal(one, *std::pmr::new_delete_resource()));

    // Between equal resources the block moves, between others the elements.
    {
        std::pmr::vector<int> from(1000, 7, &one), to(&borrowed), away(&two);
        const int *data = from.data();
        to = std::move(from);
        CHECK(to.data() == data && to.get_allocator().resource() == &borrowed);
        away = std::move(to);
        CHECK(away.data() != data && hak_heap_of(away.data()) == two.get() && away[999] == 7);
    }
    one.release();
    CHECK(!are_equal(one, borrowed) && are_equal(one, one));
}

// ---- Heaps ----

static void release()
{
    const hak_stats before = statistics();
    {
        hakmem::heap_resource resource;
        resource.release();
        CHECK(statistics().heaps_first_class == before.heaps_first_class);
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < 30000; i++) // never deallocated
                std::memset(resource.allocate(1000), 1, 1000);
            std::memset(resource.allocate(5000000, 64), 1, 5000000);
            CHECK(statistics().live >= before.live + 35000000);
            CHECK(statistics().heaps_first_class == before.heaps_first_class + 1);
            resource.release();
            CHECK(statistics().live == before.live && statistics().heaps_first_class == before.heaps_first_class);
        }
        // A deallocated block serves the next request.
        void *block = resource.allocate(1000000);
        for (int i = 0; i < 100; i++) {
            resource.deallocate(block, 1000000);
            block = resource.allocate(1000000);
        }
        CHECK(statistics().live < before.live + 3000000);
        std::memset(resource.allocate(30000000), 1, 30000000);
        CHECK(statistics().resident >= before.resident + 28000000);
    }
    CHECK(statistics().live == before.live);
    hak_collect(true);
    CHECK(statistics().resident < before.resident + 8000000);
    CHECK(statistics().mapped - statistics().purged < before.mapped + 8000000);
}

// A resource that borrows a heap leaves it to its owner.
static void borrowing()
{
    hak_heap_t *heap = hak_heap_new();
    {
        hakmem::borrowed_heap_resource resource(heap);
        CHECK(resource.get() == heap);
        std::pmr::vector<int> inner(1000, 3, &resource);
        CHECK(hak_heap_of(inner.data()) == heap);
        blocks(&resource);
    }
    void *block = hak_heap_malloc(heap, 100);
    CHECK(hak_heap_of(block) == heap);
    hak_heap_destroy(heap);
}

// As upstream of the standard's own resources.
static void upstream()
{
    hakmem::heap_resource heap;
    {
        std::pmr::monotonic_buffer_resource buffer(&heap);
        std::pmr::unsynchronized_pool_resource pool(&heap);
        std::pmr::vector<std::pmr::string> texts(&buffer), others(&pool);
        for (int i = 0; i < 1000; i++) {
            texts.emplace_back("a text that is longer than a short string");
            others.emplace_back("a text that is longer than a short string");
        }
    }
    std::pmr::monotonic_buffer_resource process(hakmem::process_resource());
    std::pmr::vector<int> vector(100000, 1, &process);
    CHECK(vector[99999] == 1);
}

// ---- Exceptions ----

static void exceptions(std::pmr::memory_resource *resource)
{
    volatile std::size_t most = PTRDIFF_MAX, more = SIZE_MAX;
    for (std::size_t alignment : { 1, 16, 64, 4096 }) {
        CHECK_THROWS(std::bad_alloc, resource->allocate(most, alignment));
        CHECK_THROWS(std::bad_alloc, resource->allocate(more, alignment));
        check_new_handlers([&] { return resource->allocate(most, alignment); });
    }
    std::pmr::vector<int> vector(100, 5, resource);
    CHECK_THROWS(std::bad_alloc, vector.reserve(vector.max_size()));
    CHECK(vector.size() == 100 && vector[99] == 5);
}

// ---- Threads ----

static void threads()
{
    for (int round = 0; round < 300; round++) { // both threads are the first to ask for memory
        hakmem::heap_resource resource;
        void *got[2];
        in_two_threads([&](int number) { got[number] = resource.allocate(100); });
        CHECK(hak_heap_of(got[0]) == resource.get() && hak_heap_of(got[1]) == resource.get());
        CHECK(statistics().heaps_first_class == 1);
    }
    hakmem::heap_resource heap;
    for (std::pmr::memory_resource *resource :
         { hakmem::process_resource(), static_cast<std::pmr::memory_resource *>(&heap) }) {
        std::pmr::list<std::pmr::vector<int>> first(resource), second(resource);
        std::pmr::list<std::pmr::vector<int>> *made[2] = { &first, &second };
        in_two_threads([&](int number) {
            for (int i = 0; i < 2000; i++) {
                made[number]->emplace_back(static_cast<std::size_t>(i % 50 + 1), number);
                if (i % 2 == 0)
                    made[number]->pop_front();
            }
        });
        in_two_threads([&](int number) { // each frees what the other allocated
            for (const std::pmr::vector<int> &values : *made[1 - number])
                CHECK(values.back() == 1 - number);
            made[1 - number]->clear();
        });
    }
}

int main()
{
    late.resource = hakmem::process_resource();
    release();
    threads();
    containers(hakmem::process_resource(), no_heap);
    hakmem::heap_resource heap;
    containers(&heap, owned_heap);
    default_resource();
    blocks(hakmem::process_resource());
    blocks(&heap);
    equality();
    borrowing();
    upstream();
    exceptions(hakmem::process_resource());
    exceptions(&heap);
    CHECK(hak_usable_size(global_vector.data()) >= 4000);
    std::puts("done");
    return 0;
}
