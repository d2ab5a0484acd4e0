#define _GNU_SOURCE
#include "os/reader.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "os/os.h"
#include "os/procfs.h"

/* An entry of /proc/self/pagemap. */
#define ENTRY_PRESENT (UINT64_C(1) << 63)
#define ENTRY_SWAPPED (UINT64_C(1) << 62)
#define ENTRY_FILE (UINT64_C(1) << 61)    /* of a file, or of shared memory */
#define ENTRY_GUARDED (UINT64_C(1) << 58) /* by MADV_GUARD_INSTALL, from Linux 6.14 on; swapped, too */

/* What ioctl(PAGEMAP_SCAN) takes and gives (linux/fs.h). */
struct scan_call {
    uint64_t size, flags, start, end, walk_end, regions, regions_most, pages_most;
    uint64_t inverted, all_of, any_of, told; /* sets of categories */
};
struct scan_region {
    uint64_t start, end, categories;
};
#define REGIONS_MOST (OS_READER_ENTRIES * sizeof(uint64_t) / sizeof(struct scan_region))
#define SCAN_CALL _IOWR('f', 16, struct scan_call)
#define SCAN_FILE (UINT64_C(1) << 2)
#define SCAN_PRESENT (UINT64_C(1) << 3)
#define SCAN_SWAPPED (UINT64_C(1) << 4)
#define SCAN_GUARDED (UINT64_C(1) << 8) /* later than the call itself, which refuses what it does not know */

/* Whether the kernel copies a word of our own, by process_vm_readv or from /proc/self/mem. */
static bool reader_tries(struct os_reader *reader)
{
    uint64_t word = UINT64_C(0x7c41d02e9b6a53f8), copy = 0;

    return os_reader_copy(reader, (uintptr_t)&word, &copy, sizeof copy) == sizeof copy && copy == word;
}

bool os_reader_begin(struct os_reader *reader, uint64_t *entries)
{
    int saved_errno = errno;
    bool reads;

    *reader = (struct os_reader){
        .thread = (int)syscall(SYS_gettid), .memory = -1, .entries = entries, .page = os_page_size()
    };
    reader->pagemap = procfs_open_own("pagemap");
    reader->regions = reader->guards = reader->pagemap >= 0;
    reads = reader_tries(reader);
    if (!reads) {
        reader->memory = procfs_open_own("mem");
        reads = reader->memory >= 0 && reader_tries(reader);
    }
    reader->failed = false;
    errno = saved_errno;
    return reads;
}

void os_reader_end(struct os_reader *reader)
{
    int saved_errno = errno;

    if (reader->pagemap >= 0)
        syscall(SYS_close, reader->pagemap);
    if (reader->memory >= 0)
        syscall(SYS_close, reader->memory);
    errno = saved_errno;
}

size_t os_reader_copy(struct os_reader *reader, uintptr_t from, void *into, size_t size)
{
    int saved_errno = errno;
    struct iovec local = { into, size }, remote = { (void *)from, size };
    /* The last argument goes over the stack, where an int's upper half would be undefined. */
    long got = reader->memory >= 0 ? syscall(SYS_pread64, reader->memory, into, size, from)
                                   : syscall(SYS_process_vm_readv, reader->thread, &local, 1UL, &remote, 1UL, 0UL);

    if (got < 0 && errno != EFAULT && errno != EIO) /* what the call and the file return for unreadable pages */
        reader->failed = true;
    errno = saved_errno;
    return got > 0 ? (size_t)got : 0;
}

/* Makes the call for the regions of [from, to) that hold something. Returns how many it told; negative: refused. */
static long reader_ask_regions(const struct os_reader *reader, struct scan_call *call, uintptr_t from, uintptr_t to)
{
    uint64_t file = reader->anonymous ? 0 : SCAN_FILE; /* SCAN_FILE has the kernel look at each page */
    uint64_t without = file | (reader->guards ? SCAN_GUARDED : 0);

    *call = (struct scan_call){ .size = sizeof *call,
                                .start = from,
                                .end = to,
                                .regions = (uint64_t)(uintptr_t)reader->entries,
                                .regions_most = REGIONS_MOST,
                                .inverted = without,
                                .all_of = without,
                                .any_of = SCAN_PRESENT | SCAN_SWAPPED,
                                .told = SCAN_PRESENT };
    return syscall(SYS_ioctl, reader->pagemap, SCAN_CALL, call);
}

/* Asks the kernel for the regions of [from, to) that hold something. False: the kernel does not know the call. */
static bool reader_fill_regions(struct os_reader *reader, uintptr_t from, uintptr_t to)
{
    struct scan_call call;
    long got = reader_ask_regions(reader, &call, from, to);

    if (got < 0 && errno == EINVAL && reader->guards) {
        reader->guards = false;
        got = reader_ask_regions(reader, &call, from, to);
    }
    if (got < 0 || call.walk_end <= from || call.walk_end > to)
        return false;
    reader->count = (size_t)got;
    reader->at = 0;
    reader->first = from;
    reader->end = call.walk_end;
    return true;
}

/* Reads what pagemap says of the pages from `from` on. False: nothing. */
static bool reader_fill_entries(struct os_reader *reader, uintptr_t from, uintptr_t to)
{
    size_t count = base_min((to - from) / reader->page, OS_READER_ENTRIES);
    long got = syscall(SYS_pread64, reader->pagemap, reader->entries, count * sizeof *reader->entries,
                       from / reader->page * sizeof *reader->entries);

    if (got < (long)sizeof *reader->entries)
        return false;
    reader->first = from;
    reader->end = from + (size_t)got / sizeof *reader->entries * reader->page;
    return true;
}

static bool reader_fill(struct os_reader *reader, uintptr_t from, uintptr_t to)
{
    int saved_errno = errno;
    bool filled;

    if (reader->regions && !reader_fill_regions(reader, from, to))
        reader->regions = false;
    filled = reader->regions || reader_fill_entries(reader, from, to);
    errno = saved_errno;
    return filled;
}

void os_reader_look(struct os_reader *reader, uintptr_t from, uintptr_t to, uintptr_t far)
{
    if (reader->pagemap >= 0 && (from < reader->first || to > reader->end))
        (void)reader_fill(reader, from, base_max(to, far));
}

/* Returns the first region that ends behind `from`; NULL if none before reader->end does. */
static const struct scan_region *reader_find_region(struct os_reader *reader, uintptr_t from)
{
    const struct scan_region *regions = (const struct scan_region *)(const void *)reader->entries;

    if (reader->at && regions[reader->at - 1].end > from)
        reader->at = 0;
    while (reader->at < reader->count && regions[reader->at].end <= from)
        reader->at++;
    return reader->at < reader->count ? &regions[reader->at] : NULL;
}

/* As os_reader_next, by regions. If the kernel refuses regions, *from is where the caller goes on by pagemap. */
static bool reader_next_region(struct os_reader *reader, uintptr_t *from, uintptr_t to, uintptr_t *run,
                               uintptr_t *run_end, bool *present)
{
    while (*from < to) {
        const struct scan_region *region;
        if ((*from < reader->first || *from >= reader->end) && !reader_fill(reader, *from, to))
            break;
        if (!reader->regions)
            break;
        region = reader_find_region(reader, *from);
        if (region && region->start < to) {
            *run = base_max(region->start, *from);
            *run_end = base_min(region->end, to);
            *present = (region->categories & SCAN_PRESENT) != 0;
            return true;
        }
        *from = region ? to : reader->end;
    }
    return false;
}

bool os_reader_next(struct os_reader *reader, uintptr_t from, uintptr_t to, uintptr_t *run, uintptr_t *run_end,
                    bool *present)
{
    bool found = false;

    if (reader->regions && reader_next_region(reader, &from, to, run, run_end, present))
        return true;
    *run = from;
    *present = false;
    for (; reader->pagemap >= 0 && from < to; from += reader->page) {
        uint64_t entry;
        bool holds;
        if ((from < reader->first || from >= reader->end) && !reader_fill(reader, from, to))
            break; /* the rest counts as pages that hold something */
        entry = reader->entries[(from - reader->first) / reader->page];
        holds = (entry & (ENTRY_PRESENT | ENTRY_SWAPPED)) && !(entry & (ENTRY_FILE | ENTRY_GUARDED));
        if (found && (!holds || *present != ((entry & ENTRY_PRESENT) != 0)))
            break;
        if (holds && !found) {
            *run = from;
            *present = (entry & ENTRY_PRESENT) != 0;
            found = true;
        }
    }
    if (!found && from < to) {
        *run = from;
        from = to;
        found = true;
    }
    *run_end = from;
    return found;
}

/* ---- Protection keys ---- */

#if defined(__x86_64__)
/* Register PKRU: two bits a key forbid access and writing. */
static uint32_t read_keys(void)
{
    uint32_t keys, high;

    __asm__ volatile(".byte 0x0f, 0x01, 0xee" : "=a"(keys), "=d"(high) : "c"(0)); /* rdpkru */
    return keys;
}

static void write_keys(uint32_t keys)
{
    __asm__ volatile(".byte 0x0f, 0x01, 0xef" : : "a"(keys), "c"(0), "d"(0) : "memory"); /* wrpkru */
}

/* Whether the system lets programs use them; asked once, since the instruction takes long in a virtual machine. */
static bool have_keys(void)
{
    static _Atomic int known; /* Order: relaxed; every thread finds the same */
    int have = atomic_load_explicit(&known, memory_order_relaxed);

    if (have == 0) {
        uint32_t a = 0, b, c = 0, d;
        __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
        if (a >= 7) {
            a = 7;
            c = 0;
            __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
            have = c >> 4 & 1 ? 1 : -1;
        } else {
            have = -1;
        }
        atomic_store_explicit(&known, have, memory_order_relaxed);
    }
    return have > 0;
}

bool os_reader_open_keys(uint32_t *keys)
{
    *keys = 0;
    if (have_keys()) {
        *keys = read_keys();
        if (*keys)
            write_keys(0);
    }
    return true;
}

void os_reader_close_keys(uint32_t keys)
{
    if (keys)
        write_keys(keys);
}
#else
bool os_reader_open_keys(uint32_t *keys)
{
    *keys = 0;
    return false;
}

void os_reader_close_keys(uint32_t keys) { (void)keys; }
#endif
