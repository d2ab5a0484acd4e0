// hakmem/allocator.hpp: both allocators with standard containers and alone.
#include <hakmem/allocator.hpp>

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <scoped_allocator>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common.hpp"

template <class T> using Vector = std::vector<T, hakmem::allocator<T>>;
template <class T> using HeapVector = std::vector<T, hakmem::heap_allocator<T>>;
using String = std::basic_string<char, std::char_traits<char>, hakmem::allocator<char>>;
using HeapString = std::basic_string<char, std::char_traits<char>, hakmem::heap_allocator<char>>;

template <std::size_t Alignment> struct alignas(Alignment) Aligned {
    char bytes[Alignment + 1];
};

// ---- The standard's requirements on the types ----

template <class Allocator> constexpr bool is_allocator()
{
    using Traits = std::allocator_traits<Allocator>;
    using Other = typename Traits::template rebind_alloc<Aligned<64>>;
    static_assert(std::is_same_v<typename Traits::value_type, int>);
    static_assert(std::is_same_v<typename Traits::pointer, int *>);
    static_assert(std::is_same_v<typename Traits::size_type, std::size_t>);
    static_assert(std::is_same_v<typename Other::value_type, Aligned<64>>);
    static_assert(std::is_same_v<typename std::allocator_traits<Other>::template rebind_alloc<int>, Allocator>);
    static_assert(std::is_nothrow_copy_constructible_v<Allocator> && std::is_nothrow_move_constructible_v<Allocator>);
    static_assert(std::is_nothrow_copy_assignable_v<Allocator>);
    static_assert(std::is_nothrow_constructible_v<Other, const Allocator &>);
    static_assert(noexcept(std::declval<Allocator &>().deallocate(nullptr, 1)));
    static_assert(noexcept(std::declval<const Allocator &>() == std::declval<const Other &>()));
    return true;
}
static_assert(is_allocator<hakmem::allocator<int>>() && is_allocator<hakmem::heap_allocator<int>>());

using ProcessTraits = std::allocator_traits<hakmem::allocator<int>>;
static_assert(std::is_empty_v<hakmem::allocator<int>> &&
              std::is_nothrow_default_constructible_v<hakmem::allocator<int>>);
static_assert(ProcessTraits::is_always_equal::value && ProcessTraits::propagate_on_container_move_assignment::value);
static_assert(sizeof(Vector<int>) == sizeof(std::vector<int>));
static_assert(std::is_nothrow_move_assignable_v<Vector<int>> && std::is_nothrow_swappable_v<Vector<int>>);

using HeapTraits = std::allocator_traits<hakmem::heap_allocator<int>>;
static_assert(!HeapTraits::is_always_equal::value && !std::is_default_constructible_v<hakmem::heap_allocator<int>>);
static_assert(!HeapTraits::propagate_on_container_copy_assignment::value);
static_assert(!HeapTraits::propagate_on_container_move_assignment::value);
static_assert(HeapTraits::propagate_on_container_swap::value);

#if __cplusplus >= 202002L
constinit hakmem::heap global_heap;
#else
hakmem::heap global_heap;
#endif

// ---- Containers ----

struct Tree { // incomplete where the allocator is named
    int value = 0;
    Vector<Tree> children;
};

static void containers()
{
    std::map<String, Vector<int>, std::less<>, hakmem::allocator<std::pair<const String, Vector<int>>>> map;
    std::unordered_map<int, String, std::hash<int>, std::equal_to<>, hakmem::allocator<std::pair<const int, String>>>
        table;
    std::deque<int, hakmem::allocator<int>> queue;
    std::list<int, hakmem::allocator<int>> list;
    for (int i = 0; i < 3000; i++) {
        map[String("a key longer than a short string ") + std::to_string(i % 97).c_str()].push_back(i);
        table[i] = String(static_cast<std::size_t>(i % 300), 'x');
        queue.push_back(i);
        list.push_front(i);
        if (i % 3 == 0) {
            table.erase(i / 2);
            queue.pop_front();
        }
    }
    int count = 0;
    for (const auto &[key, values] : map) {
        CHECK(hak_usable_size(key.data()) > key.size() && hak_heap_of(values.data()) == nullptr);
        count += static_cast<int>(values.size());
    }
    CHECK(count == 3000 && queue.size() == 2000 && list.size() == 3000);

    Tree tree;
    tree.children.resize(10);
    tree.children[3].children.resize(100);
    CHECK(hak_usable_size(tree.children[3].children.data()) >= 100 * sizeof(Tree));
    Vector<bool> bits(1000, true);
    bits.flip();
    auto shared = std::allocate_shared<Aligned<128>>(hakmem::allocator<void>());
    CHECK(is_aligned(shared.get(), 128));

    Vector<int> from(1000, 7), to(10, 3);
    const int *data = from.data();
    to = std::move(from);
    CHECK(to.data() == data && to[999] == 7);
    CHECK(hakmem::allocator<int>() == hakmem::allocator<char>() &&
          !(hakmem::allocator<int>() != hakmem::allocator<char>()));
}

template <std::size_t Alignment> static void alignment()
{
    using T = Aligned<Alignment>;
    Vector<T> vector(3);
    std::list<T, hakmem::allocator<T>> list(3);
    hakmem::heap heap;
    HeapVector<T> heap_vector(3, heap);
    for (int i = 0; i < 3; i++) {
        vector.resize(vector.size() * 2);
        heap_vector.resize(heap_vector.size() * 2);
        std::memset(vector.data()->bytes, i, sizeof vector.data()->bytes);
        CHECK(is_aligned(vector.data(), Alignment) && is_aligned(heap_vector.data(), Alignment));
        CHECK(hak_heap_of(heap_vector.data()) == heap.get() && hak_heap_of(vector.data()) == nullptr);
    }
    for (const T &element : list)
        CHECK(is_aligned(&element, Alignment));
}

// Size classes have smaller alignments. Blocks of another size keep neighbours from being aligned by chance.
struct alignas(1 << 23) Huge {
    char bytes[1 << 23];
};

template <class Allocator> static void huge_alignment(Allocator allocator)
{
    constexpr std::size_t between = 3 << 20;
    typename std::allocator_traits<Allocator>::template rebind_alloc<char> chars(allocator);
    Huge *blocks[6];
    char *others[6];
    for (int i = 0; i < 6; i++) {
        others[i] = chars.allocate(between);
        blocks[i] = allocator.allocate(1);
        CHECK(is_aligned(blocks[i], alignof(Huge)));
        blocks[i]->bytes[sizeof(Huge) - 1] = 1;
    }
    for (int i = 0; i < 6; i++) {
        chars.deallocate(others[i], between);
        allocator.deallocate(blocks[i], 1);
    }
}

// ---- allocate_at_least ----

template <class T, class Allocator> static void at_least(Allocator allocator)
{
    for (std::size_t count = 0; count * sizeof(T) < 4000000; count = count * 9 / 8 + 1) {
        for (int way = 0; way < 3; way++) {
            auto [block, got] = allocator.allocate_at_least(count);
            std::size_t usable = hak_usable_size(block);
            CHECK(got >= count && got * sizeof(T) <= usable && usable - got * sizeof(T) < sizeof(T));
            std::memset(static_cast<void *>(block), way, got * sizeof(T));
            allocator.deallocate(block, way == 0 ? count : way == 1 ? got : (count + got) / 2);
        }
    }
    auto result = allocator.allocate_at_least(5);
    static_assert(std::is_same_v<decltype(result.ptr), T *> && std::is_same_v<decltype(result.count), std::size_t>);
    allocator.deallocate(result.ptr, result.count);
}

#if defined(__cpp_lib_allocate_at_least)
template <class Allocator> static auto by_the_library(Allocator &allocator, std::size_t count)
{
#if __cpp_lib_allocate_at_least >= 202302L
    return std::allocator_traits<Allocator>::allocate_at_least(allocator, count);
#else
    return std::allocate_at_least(allocator, count);
#endif
}
#endif

static void by_standard_library()
{
#if defined(__cpp_lib_allocate_at_least)
    hakmem::heap heap;
    hakmem::allocator<char> process;
    hakmem::heap_allocator<char> local(heap);
    auto first = by_the_library(process, 1025), second = by_the_library(local, 1025);
    static_assert(std::is_same_v<decltype(first), hakmem::allocation_result<char *>>);
    CHECK(first.count == hak_good_size(1025) && second.count == hak_good_size(1025) && first.count > 1025);
    process.deallocate(first.ptr, first.count);
    local.deallocate(second.ptr, second.count);
    Vector<char> vector;
    vector.reserve(1025);
    CHECK(vector.capacity() == hak_good_size(1025));
    std::puts("allocate_at_least by the library");
#endif
}

// ---- Exceptions ----

template <class Allocator> static void exceptions(Allocator allocator)
{
    using T = typename Allocator::value_type;
    volatile std::size_t uncountable = SIZE_MAX / sizeof(T) + 1;
    volatile std::size_t too_many = static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(T);
    CHECK_THROWS(std::bad_array_new_length, allocator.allocate(uncountable));
    CHECK_THROWS(std::bad_array_new_length, allocator.allocate_at_least(uncountable));
    CHECK_THROWS(std::bad_alloc, allocator.allocate(too_many));
    CHECK_THROWS(std::bad_alloc, allocator.allocate_at_least(too_many));
    check_new_handlers([&] { return allocator.allocate(too_many); });

    // A failure leaves the old elements unchanged.
    std::vector<T, Allocator> vector(100, T(), allocator);
    const T *data = vector.data();
    CHECK_THROWS(std::bad_alloc, vector.reserve(vector.max_size()));
    CHECK(vector.data() == data && vector.size() == 100);
}

// ---- Heaps ----

static void heaps()
{
    hakmem::heap one, two;
    CHECK(one.peek() == nullptr);
    hakmem::heap_allocator<int> in_one(one), in_two(two.get());
    hakmem::heap_allocator<char> chars(in_one);
    CHECK(one.peek() == one.get() && in_one.get() == one.get() && chars.get() == one.get());
    CHECK(chars == in_one && !(chars != in_one) && in_one != in_two && !(in_one == in_two));

    HeapVector<int> a(1000, 1, one), b(2000, 2, two);
    const int *in_a = a.data(), *in_b = b.data();
    CHECK(hak_heap_of(in_a) == one.get() && hak_heap_of(in_b) == two.get());
    HeapVector<int> copy(a);
    CHECK(hak_heap_of(copy.data()) == one.get());
    copy = b;
    CHECK(copy.size() == 2000 && hak_heap_of(copy.data()) == one.get() && copy.get_allocator() == in_one);
    copy = std::move(b); // from another heap: moves the elements, not the block
    CHECK(copy[1999] == 2 && copy.data() != in_b && hak_heap_of(copy.data()) == one.get());
    copy = std::move(a); // in one heap: moves the block
    CHECK(copy.data() == in_a && copy.get_allocator() == in_one);
    HeapVector<int> c(3000, 3, two);
    const int *in_c = c.data();
    swap(copy, c);
    CHECK(copy.data() == in_c && copy.get_allocator() == in_two && c.data() == in_a && c.get_allocator() == in_one);
    HeapVector<int> moved(std::move(c));
    CHECK(moved.data() == in_a && moved.get_allocator() == in_one);

    // Outer and inner blocks in one heap.
    using Scoped = std::scoped_allocator_adaptor<hakmem::heap_allocator<HeapString>>;
    std::vector<HeapString, Scoped> texts{ Scoped(two) };
    texts.emplace_back("a text that is longer than a short string");
    CHECK(hak_heap_of(texts.data()) == two.get() && hak_heap_of(texts[0].data()) == two.get());
}

static void everything_at_once()
{
    const hak_stats before = statistics();
    {
        hakmem::heap heap;
        for (int round = 0; round < 3; round++) {
            hakmem::heap_allocator<char> allocator(heap);
            for (int i = 0; i < 30000; i++) // never deallocated
                std::memset(allocator.allocate(1000), 1, 1000);
            std::memset(allocator.allocate(5000000), 1, 5000000);
            CHECK(statistics().live >= before.live + 35000000);
            CHECK(statistics().heaps_first_class == before.heaps_first_class + 1);
            heap.release();
            CHECK(heap.peek() == nullptr && statistics().live == before.live);
            CHECK(statistics().heaps_first_class == before.heaps_first_class);
            heap.release();
        }
        std::memset(hakmem::heap_allocator<char>(heap).allocate(30000000), 1, 30000000);
        CHECK(statistics().resident >= before.resident + 28000000);
    }
    CHECK(statistics().live == before.live);
    hak_collect(true);
    CHECK(statistics().resident < before.resident + 8000000);
    CHECK(statistics().mapped - statistics().purged < before.mapped + 8000000);
}

// ---- Threads ----

static void threads()
{
    // Both threads are the first to use the heap.
    for (int round = 0; round < 300; round++) {
        hakmem::heap heap;
        hak_heap_t *seen[2];
        in_two_threads([&](int number) { seen[number] = heap.get(); });
        CHECK(seen[0] != nullptr && seen[0] == seen[1] && statistics().heaps_first_class == 1);
    }
    CHECK(statistics().heaps_first_class == 0);

    // Containers of one heap in both, and blocks that the other thread frees.
    hakmem::heap heap;
    std::map<int, Vector<int>, std::less<>, hakmem::allocator<std::pair<const int, Vector<int>>>> made[2];
    std::list<HeapVector<int>> lists[2];
    in_two_threads([&](int number) {
        for (int i = 0; i < 2000; i++) {
            made[number][i].assign(static_cast<std::size_t>(i % 50), number);
            lists[number].emplace_back(static_cast<std::size_t>(i % 50 + 1), number, heap);
            if (i % 2 == 0)
                lists[number].pop_front();
        }
    });
    in_two_threads([&](int number) {
        for (const auto &[key, values] : made[1 - number])
            for (int value : values)
                CHECK(key >= 0 && value == 1 - number);
        for (const HeapVector<int> &values : lists[1 - number])
            CHECK(values.back() == 1 - number && hak_heap_of(values.data()) == heap.get());
        made[1 - number].clear();
        lists[1 - number].clear();
    });
}

int main()
{
    everything_at_once();
    threads();
    containers();
    alignment<1>();
    alignment<8>();
    alignment<16>();
    alignment<32>();
    alignment<64>();
    alignment<4096>();
    huge_alignment(hakmem::heap_allocator<Huge>(global_heap));
    huge_alignment(hakmem::allocator<Huge>());
    at_least<char>(hakmem::allocator<char>());
    at_least<Aligned<1>>(hakmem::allocator<Aligned<1>>());
    at_least<Aligned<64>>(hakmem::allocator<Aligned<64>>());
    at_least<char>(hakmem::heap_allocator<char>(global_heap));
    at_least<Aligned<64>>(hakmem::heap_allocator<Aligned<64>>(global_heap));
    by_standard_library();
    exceptions(hakmem::allocator<int>());
    exceptions(hakmem::allocator<Aligned<64>>());
    exceptions(hakmem::heap_allocator<int>(global_heap));
    exceptions(hakmem::heap_allocator<Aligned<64>>(global_heap));
    heaps();
    std::puts("done");
    return 0;
}
