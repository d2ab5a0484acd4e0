/*
 * The option table: one row an option, from which the parser, the verbose print, docs/options.md and the tests are
 * made.
 *
 *   OPTION(field, "HAKMEM_NAME", kind, default, lowest, highest, "unit", "what it does")
 *
 * kind: BOOL (0 or 1, off/on, no/yes, false/true), COUNT (a plain number), SIZE (bytes; suffixes K, M, G, T, KiB, ...),
 *       TIME (milliseconds), MICROS (microseconds), LIMIT (a SIZE, 0 = none, or `auto`), CHOICE (auto|never|always),
 *       FORMAT (a switch, or text|json|prometheus), PATH (of a file, or the text that the unit names; the value is 0 or
 *       the address of a copy of the text).
 */
#ifndef HAK_OPTIONS_TABLE_H
#define HAK_OPTIONS_TABLE_H

#include "base/base.h"

/* Values of a LIMIT that are not numbers of bytes: superslab/limits.h finds the limit. LIMIT_DEFAULT: it is not set. */
#define LIMIT_AUTO UINT64_MAX
#define LIMIT_DEFAULT (UINT64_MAX - 1)

/* N6 (superslab/footprint.h) replaces these two bounds while the options have their default values. */
#define SS_LRU_SIZE_DEFAULT 128
#define HUGE_CACHE_DEFAULT 536870912

#define OPTION_TABLE(OPTION)                                                                                          \
    OPTION(fc_cap, "HAKMEM_FC_CAP", COUNT, 256, 8, 256, "blocks",                                                     \
           "most blocks of one size class a thread cache holds")                                                      \
    OPTION(fc_refill, "HAKMEM_FC_REFILL", COUNT, 64, 1, 128, "blocks", "most blocks one refill takes")                \
    OPTION(cache_bytes, "HAKMEM_CACHE_BYTES", SIZE, 1048576, 16384, 67108864, "bytes",                                 \
           "most bytes a thread cache may hold; 256 times as much where the process has one thread") \
    OPTION(warm_pool, "HAKMEM_WARM_POOL", COUNT, 16, 0, 16, "slabs",                                                  \
           "most empty slabs of one length a heap keeps ready to carve")                                              \
    OPTION(front_stats, "HAKMEM_FRONT_STATS", BOOL, 0, 0, 1, "",                                                      \
           "print the thread caches' refills and flushes at exit")                                                    \
    OPTION(warm_pool_stats, "HAKMEM_WARM_POOL_STATS", BOOL, 0, 0, 1, "", "print the warm pool's figures at exit")     \
    OPTION(ss_lru_size, "HAKMEM_SS_LRU_SIZE", COUNT, SS_LRU_SIZE_DEFAULT, 0, 4096, "SuperSlabs",                       \
           "empty SuperSlabs whose memory may wait out the purge delay; more are purged at once")                     \
    OPTION(ss_lru_debug, "HAKMEM_SS_LRU_DEBUG", BOOL, 0, 0, 1, "", \
        "print each SuperSlab that enters or leaves the LRU") \
    OPTION(ss_prewarm, "HAKMEM_SS_PREWARM", COUNT, 0, 0, 4096, "SuperSlabs",                                          \
           "SuperSlabs to make ready, memory and all, at start")                                                      \
    OPTION(ss_prewarm_debug, "HAKMEM_SS_PREWARM_DEBUG", BOOL, 0, 0, 1, "", "print what the prewarming did")           \
    OPTION(mf2_enable, "HAKMEM_MF2_ENABLE", BOOL, 1, 0, 1, "",                                                        \
           "return remote blocks through pending queues; 0 takes the owner's lock instead")                           \
    OPTION(mf2_max_queues, "HAKMEM_MF2_MAX_QUEUES", COUNT, 4, 0, 64, "heaps",                                         \
           "idle heaps one refill looks at for slabs to adopt")                                                       \
    OPTION(mf2_idle_threshold_us, "HAKMEM_MF2_IDLE_THRESHOLD_US", MICROS, 150, 0, 60000000, "us",                     \
           "a heap silent this long with slabs pending may have them adopted")                                        \
    OPTION(mf2_enqueue_threshold, "HAKMEM_MF2_ENQUEUE_THRESHOLD", COUNT, 4, 1, 1048576, "slabs",                      \
           "pending slabs that make an idle heap worth adopting from")                                                \
    OPTION(tiny_profile, "HAKMEM_TINY_PROFILE", FORMAT, 0, 0, 3, "",                                                  \
           "cycle profile at exit, as text (so does 1), JSON or Prometheus text; needs a build that carries it")      \
    OPTION(debug_counters, "HAKMEM_DEBUG_COUNTERS", BOOL, 0, 0, 1, "",                                                \
           "print the debug counters at exit; needs a build that carries them")                                       \
    OPTION(show_stats, "HAKMEM_SHOW_STATS", FORMAT, 0, 0, 3, "",                                                      \
           "print statistics at exit, as text (so does 1), JSON or Prometheus text")                                  \
    OPTION(stats_file, "HAKMEM_STATS_FILE", PATH, 0, 0, 0, "",                                                        \
           "write the statistics of `HAKMEM_SHOW_STATS` there instead of to standard error; `%p` becomes the " \
           "process's number") \
    OPTION(heap_profile, "HAKMEM_HEAP_PROFILE", PATH, 0, 0, 0, "",                                                    \
           "sample allocations from the start and write a heap profile there at exit; %p is the process, %n the " \
           "file's number") \
    OPTION(heap_profile_rate, "HAKMEM_HEAP_PROFILE_RATE", SIZE, 524288, 1, 1099511627776, "bytes",                    \
           "mean distance of the heap profile's samples")                                                             \
    OPTION(heap_profile_overhead, "HAKMEM_HEAP_PROFILE_OVERHEAD", COUNT, 5, 0, 1000, "per mille",                    \
           "of a thread's time that samples may take before they become rarer; more where the rate is finer; 0: no " \
           "bound") \
    OPTION(heap_profile_interval, "HAKMEM_HEAP_PROFILE_INTERVAL", SIZE, 0, 0, 1125899906842624, "bytes",              \
           "write the heap profile whenever this much more was allocated; 0: only at exit")                           \
    OPTION(heap_profile_signal, "HAKMEM_HEAP_PROFILE_SIGNAL", PATH, 0, 0, 0, "signal's name or number",               \
           "a signal on which the heap profile is written; one that the program handles is not taken") \
    OPTION(heap_profile_unwind, "HAKMEM_HEAP_PROFILE_UNWIND", PATH, 0, 0, 0, "word: auto, eh, fp",                    \
           "how the heap profile finds stacks: eh (unwind tables), fp (frame pointers); auto, as without it: eh " \
           "where such tables can be read, else fp") \
    OPTION(heap_profile_python, "HAKMEM_HEAP_PROFILE_PYTHON", BOOL, 1, 0, 1, "",                                       \
           "put the functions of Python programs (CPython 3.9 to 3.14) into the heap profile's stacks")               \
    OPTION(guard, "HAKMEM_GUARD", BOOL, 0, 0, 1, "",                                                                   \
           "from the start, put a few blocks between pages that cannot be touched, and report errors at them")        \
    OPTION(guard_rate, "HAKMEM_GUARD_RATE", SIZE, 8388608, 1, 1099511627776, "bytes",                                 \
           "mean bytes of allocation between guarded blocks")                                                         \
    OPTION(guard_slots, "HAKMEM_GUARD_SLOTS", COUNT, 256, 16, 2048, "blocks",                                         \
           "places for guarded blocks; a freed block stays untouchable until its place is used again")                \
    OPTION(guard_file, "HAKMEM_GUARD_FILE", PATH, 0, 0, 0, "",                                                        \
           "append each report of a guarded block there as a line of JSON; `%p` becomes the process's number")       \
    OPTION(guard_continue, "HAKMEM_GUARD_CONTINUE", BOOL, 0, 0, 1, "",                                                \
           "go on after a report of a guarded block: the page that was touched is opened, and misuse does not abort") \
    OPTION(leak_report, "HAKMEM_LEAK_REPORT", BOOL, 0, 0, 1, "",                                                      \
           "sample allocations from the start and print what is in use at exit, by site")                             \
    OPTION(record_all, "HAKMEM_RECORD_ALL", BOOL, 0, 0, 1, "",                                                        \
           "record every allocation with its stack from the start; `hakmem leaks` sets it and reads the records")     \
    OPTION(purge_delay, "HAKMEM_PURGE_DELAY", TIME, 500, 0, 3600000, "ms",                                            \
           "free memory goes back to the system when it was not wanted for this long")                                \
    OPTION(purge_thread, "HAKMEM_PURGE_THREAD", CHOICE, 0, 0, 2, "",                                                  \
           "a thread that purges for a process that is wholly idle: auto (made beside the program's threads, and " \
           "ends with them), never, always (from the start)") \
    OPTION(huge_cache, "HAKMEM_HUGE_CACHE", SIZE, HUGE_CACHE_DEFAULT, 0, 1099511627776, "bytes",                      \
           "most bytes of freed huge blocks kept for reuse")                                                          \
    OPTION(populate, "HAKMEM_POPULATE", BOOL, 1, 0, 1, "", \
        "fault memory in by whole slabs once a class has proven its use") \
    OPTION(thp, "HAKMEM_THP", CHOICE, 0, 0, 2, "",                                                                    \
           "transparent huge pages: auto (only for heaps already large), never, always")                              \
    OPTION(memory_limit_soft, "HAKMEM_MEMORY_LIMIT_SOFT", LIMIT, LIMIT_DEFAULT, 0, 0, "bytes",                        \
           "above it freed memory is given back at once") \
    OPTION(memory_limit, "HAKMEM_MEMORY_LIMIT", LIMIT, 0, 0, 0, "bytes",                                             \
           "above it allocation fails with ENOMEM, after what is free was given back")     \
    OPTION(arena_size, "HAKMEM_ARENA_SIZE", SIZE, 0, 0, 1099511627776, "bytes",                                      \
           "the most address space for small blocks; 0: far more than a machine's memory")                           \
    OPTION(deepbind, "HAKMEM_DEEPBIND", BOOL, 0, 0, 1, "",                                                            \
           "leave RTLD_DEEPBIND in what the program passes to dlopen; 0 drops it, so that the library uses the " \
           "process's malloc") \
    OPTION(hardened, "HAKMEM_HARDENED", BOOL, HAK_SECURE, 0, 1, "",                                                   \
           "check every call, seal every block with a canary, zero and hold back what is freed; libhakmem-secure " \
           "always does") \
    OPTION(harden_canary, "HAKMEM_HARDEN_CANARY", BOOL, 1, 0, 1, "",                                                  \
           "hardened: check the canary behind each block when it is freed or resized")                                \
    OPTION(harden_zero, "HAKMEM_HARDEN_ZERO", BOOL, 1, 0, 1, "",                                                      \
           "hardened: zero what is freed, and check that it still is when it is used again")                          \
    OPTION(harden_quarantine, "HAKMEM_HARDEN_QUARANTINE", SIZE, 65536, 0, 1048576, "bytes",                           \
           "hardened: freed blocks of one size class that a thread holds back, at most; 0: none")                     \
    OPTION(harden_random, "HAKMEM_HARDEN_RANDOM", BOOL, 1, 0, 1, "",                                                  \
           "hardened: take a random one of the free blocks at hand, and let a random one leave the quarantine")       \
    OPTION(harden_neighbours, "HAKMEM_HARDEN_NEIGHBOURS", BOOL, 1, 0, 1, "",                                          \
           "hardened: a free looks at the ends of the blocks before and behind, too; needs `HAKMEM_HARDEN_ZERO`")      \
    OPTION(harden_patrol, "HAKMEM_HARDEN_PATROL", COUNT, 64, 0, 64, "blocks",                                         \
           "hardened: when blocks move between a thread and a slab, check the ends of up to this many other blocks " \
           "of the slab, and of no more than move; needs `HAKMEM_HARDEN_NEIGHBOURS`")                                 \
    OPTION(harden_nothing, "HAKMEM_HARDEN_NOTHING", BOOL, 1, 0, 1, "",                                                \
           "hardened: blocks of 0 bytes cannot be read or written")                                                   \
    OPTION(harden_guards, "HAKMEM_HARDEN_GUARDS", BOOL, 1, 0, 1, "",                                                  \
           "hardened: units that cannot be read or written between slabs and around the allocator's records; slabs " \
           "lie at random places") \
    OPTION(harden_protect, "HAKMEM_HARDEN_PROTECT", BOOL, 1, 0, 1, "",                                                \
           "hardened: freed blocks above 57344 bytes cannot be read or written until they are used again; those " \
           "above 1 MiB end in such pages") \
    OPTION(harden_protect_time, "HAKMEM_HARDEN_PROTECT_TIME", COUNT, 100, 1, 100, "percent of a thread's time", \
           "hardened: the time that closing freed blocks up to 1 MiB may take; blocks that are freed beyond it are " \
           "zeroed and checked instead; 100: no bound") \
    OPTION(harden_operators, "HAKMEM_HARDEN_OPERATORS", BOOL, 1, 0, 1, "",                                   \
           "hardened: check that delete gets a block of new, delete[] one of new[] and free one of malloc, and that " \
           "a sized delete gives the block's size") \
    OPTION(sweep, "HAKMEM_SWEEP", BOOL, 0, 0, 1, "",                                                                   \
           "hardened: what is freed is used again only after a sweep over the process's memory found no pointer to " \
           "it") \
    OPTION(sweep_percent, "HAKMEM_SWEEP_PERCENT", COUNT, 25, 1, 1000, "percent of what is in use",                    \
           "a sweep is due when this much more waits than the last sweep left")                                       \
    OPTION(sweep_min, "HAKMEM_SWEEP_MIN", SIZE, 4194304, 65536, 1099511627776, "bytes", \
           "a sweep is due only when at least this much more waits") \
    OPTION(sweep_keep, "HAKMEM_SWEEP_KEEP", COUNT, 100, 0, 10000, "percent of what is in use",                        \
           "the most that may wait after a sweep because pointers refer to it, but at least 16 MiB; 0: no bound")     \
    OPTION(sweep_signal, "HAKMEM_SWEEP_SIGNAL", COUNT, 16, 0, 64, "signal's number",                                  \
           "stops the other threads for a sweep; if the program handles it, another signal does; 0: the threads " \
           "are not stopped") \
    OPTION(verbose, "HAKMEM_VERBOSE", BOOL, 0, 0, 1, "", "print version and settings at start")                       \
    OPTION(abort_on_misuse, "HAKMEM_ABORT_ON_MISUSE", BOOL, 1, 0, 1, "",                                              \
           "0: report misuse and go on without the call, instead of aborting")

#endif
