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
           "most blocks of one size class that a thread cache holds; 256: only the class and `HAKMEM_CACHE_BYTES` "   \
           "bound it")                                                                                                \
    OPTION(fc_refill, "HAKMEM_FC_REFILL", COUNT, 64, 1, 128, "blocks", "most blocks that one refill takes")           \
    OPTION(cache_bytes, "HAKMEM_CACHE_BYTES", SIZE, 1048576, 16384, 67108864, "bytes",                                \
           "most bytes that a thread cache holds; 256 times as much in a process with one thread")                    \
    OPTION(warm_pool, "HAKMEM_WARM_POOL", COUNT, 16, 0, 16, "slabs",                                                  \
           "most empty slabs of one length that a heap keeps ready to carve")                                         \
    OPTION(front_stats, "HAKMEM_FRONT_STATS", BOOL, 0, 0, 1, "",                                                      \
           "count every hit of the thread caches, and print hits and misses of each part at exit")                    \
    OPTION(warm_pool_stats, "HAKMEM_WARM_POOL_STATS", BOOL, 0, 0, 1, "", "print the warm pool's figures at exit")     \
    OPTION(ss_lru_size, "HAKMEM_SS_LRU_SIZE", COUNT, SS_LRU_SIZE_DEFAULT, 0, 4096, "SuperSlabs",                      \
           "empty SuperSlabs that may keep their memory for the purge delay; further ones are purged at once")        \
    OPTION(ss_lru_debug, "HAKMEM_SS_LRU_DEBUG", BOOL, 0, 0, 1, "", \
        "print each SuperSlab that enters or leaves the LRU") \
    OPTION(ss_prewarm, "HAKMEM_SS_PREWARM", COUNT, 0, 0, 4096, "SuperSlabs",                                          \
           "SuperSlabs to prepare at start, with memory behind them")                                                 \
    OPTION(ss_prewarm_debug, "HAKMEM_SS_PREWARM_DEBUG", BOOL, 0, 0, 1, "",                                            \
           "print how many SuperSlabs `HAKMEM_SS_PREWARM` has prepared")                                              \
    OPTION(mf2_enable, "HAKMEM_MF2_ENABLE", BOOL, 1, 0, 1, "",                                                        \
           "1: give blocks back to other threads' heaps through pending queues; 0: under the owner's lock")           \
    OPTION(mf2_max_queues, "HAKMEM_MF2_MAX_QUEUES", COUNT, 4, 0, 16, "heaps",                                         \
           "heaps with pending slabs at which one refill looks for slabs to adopt")                                   \
    OPTION(mf2_idle_threshold_us, "HAKMEM_MF2_IDLE_THRESHOLD_US", MICROS, 150, 0, 60000000, "us",                     \
           "how long a heap must be silent before refills of other threads adopt its slabs")                          \
    OPTION(mf2_enqueue_threshold, "HAKMEM_MF2_ENQUEUE_THRESHOLD", COUNT, 4, 1, 1048576, "slabs",                      \
           "how many slabs a silent heap must have pending before refills of other threads adopt from it")            \
    OPTION(tiny_profile, "HAKMEM_TINY_PROFILE", FORMAT, 0, 0, 3, "",                                                  \
           "print the cycle profile at exit: as text (also 1), as JSON or for Prometheus; needs the flavor `cycles`") \
    OPTION(debug_counters, "HAKMEM_DEBUG_COUNTERS", BOOL, 0, 0, 1, "",                                                \
           "print the debug counters at exit; needs a debug build")                                                   \
    OPTION(show_stats, "HAKMEM_SHOW_STATS", FORMAT, 0, 0, 3, "",                                                      \
           "print statistics at exit: as text (also 1), as JSON or for Prometheus")                                   \
    OPTION(stats_file, "HAKMEM_STATS_FILE", PATH, 0, 0, 0, "",                                                        \
           "file for the statistics of `HAKMEM_SHOW_STATS`, in place of standard error")                              \
    OPTION(heap_profile, "HAKMEM_HEAP_PROFILE", PATH, 0, 0, 0, "",                                                    \
           "sample allocations from the start, and write a heap profile to this file at exit; `%n` becomes the "      \
           "file's number")                                                                                           \
    OPTION(heap_profile_rate, "HAKMEM_HEAP_PROFILE_RATE", SIZE, 524288, 1, 1099511627776, "bytes",                    \
           "mean bytes of allocation between samples of the heap profile")                                            \
    OPTION(heap_profile_interval, "HAKMEM_HEAP_PROFILE_INTERVAL", SIZE, 0, 0, 1125899906842624, "bytes",              \
           "write the heap profile each time that so many more bytes were allocated; 0: only at exit")                \
    OPTION(heap_profile_signal, "HAKMEM_HEAP_PROFILE_SIGNAL", PATH, 0, 0, 0, "signal's name or number",               \
           "signal on which the heap profile is written, unless the program handles or ignores that signal")          \
    OPTION(heap_profile_unwind, "HAKMEM_HEAP_PROFILE_UNWIND", PATH, 0, 0, 0, "word: auto, eh, fp",                    \
           "how the heap profile finds stacks: eh (unwind tables), fp (frame pointers), or auto, the default: eh "    \
           "where such tables can be read, else fp")                                                                  \
    OPTION(heap_profile_python, "HAKMEM_HEAP_PROFILE_PYTHON", BOOL, 1, 0, 1, "",                                      \
           "put the functions of Python programs (CPython 3.9 to 3.14) into the heap profile's stacks")               \
    OPTION(guard, "HAKMEM_GUARD", BOOL, 0, 0, 1, "",                                                                  \
           "from the start, put a few blocks between pages that cannot be touched, and report errors at them")        \
    OPTION(guard_rate, "HAKMEM_GUARD_RATE", SIZE, 8388608, 1, 1099511627776, "bytes",                                 \
           "mean bytes of allocation between guarded blocks")                                                         \
    OPTION(guard_slots, "HAKMEM_GUARD_SLOTS", COUNT, 256, 16, 2048, "blocks",                                         \
           "places for guarded blocks; places that are not in use keep freed blocks untouchable")                     \
    OPTION(guard_file, "HAKMEM_GUARD_FILE", PATH, 0, 0, 0, "",                                                        \
           "file to which each report of a guarded block is appended as a line of JSON")                              \
    OPTION(guard_continue, "HAKMEM_GUARD_CONTINUE", BOOL, 0, 0, 1, "",                                                \
           "go on after a report of a guarded block: HAKMEM opens the page that was touched, and misuse does not "    \
           "abort")                                                                                                   \
    OPTION(leak_report, "HAKMEM_LEAK_REPORT", BOOL, 0, 0, 1, "",                                                      \
           "sample allocations from the start, and print at exit which sites have memory in use")                     \
    OPTION(record_all, "HAKMEM_RECORD_ALL", BOOL, 0, 0, 1, "",                                                        \
           "record every allocation with its stack from the start; `hakmem leaks` sets it and reads the records")     \
    OPTION(purge_delay, "HAKMEM_PURGE_DELAY", TIME, 500, 0, 3600000, "ms",                                            \
           "how long free memory must be unused before it goes back to the system")                                   \
    OPTION(purge_thread, "HAKMEM_PURGE_THREAD", CHOICE, 0, 0, 2, "",                                                  \
           "a thread that purges while the whole process is idle: auto (in a process that makes threads; it works "   \
           "while 16 MiB are free), never, always (from the start)")                                                  \
    OPTION(huge_cache, "HAKMEM_HUGE_CACHE", SIZE, HUGE_CACHE_DEFAULT, 0, 1099511627776, "bytes",                      \
           "most bytes of freed huge blocks that are kept for reuse")                                                 \
    OPTION(populate, "HAKMEM_POPULATE", BOOL, 1, 0, 1, "",                                                            \
           "fault memory in by whole slabs for a size class that has filled several")                                 \
    OPTION(thp, "HAKMEM_THP", CHOICE, 0, 0, 2, "",                                                                    \
           "transparent huge pages: auto (in large heaps whose blocks are filled), never, always")                    \
    OPTION(memory_limit_soft, "HAKMEM_MEMORY_LIMIT_SOFT", LIMIT, LIMIT_DEFAULT, 0, 0, "bytes",                        \
           "while HAKMEM holds more than this, it gives freed memory back at once")                                   \
    OPTION(memory_limit, "HAKMEM_MEMORY_LIMIT", LIMIT, 0, 0, 0, "bytes",                                              \
           "an allocation that would exceed this fails with ENOMEM, after HAKMEM has given back all free memory")     \
    OPTION(arena_size, "HAKMEM_ARENA_SIZE", SIZE, 0, 0, 1099511627776, "bytes",                                       \
           "most address space for blocks up to 1 MiB, at least 16M; 0: 8 TiB") \
    OPTION(deepbind, "HAKMEM_DEEPBIND", BOOL, 0, 0, 1, "",                                                            \
           "1: leave RTLD_DEEPBIND in calls of dlopen; 0: remove it, so that the library uses the process's malloc") \
    OPTION(verbose, "HAKMEM_VERBOSE", BOOL, 0, 0, 1, "", "print the version and the settings at start")               \
    OPTION(abort_on_misuse, "HAKMEM_ABORT_ON_MISUSE", BOOL, 1, 0, 1, "", \
           "1: report misuse and abort; 0: report it, ignore the call and go on")

/*
 * Variables of the source documents whose work needs no setting. HAKMEM accepts them with any value. With
 * HAKMEM_VERBOSE it says for each that is set what does its work.
 *
 *   ACCEPTED("HAKMEM_NAME", "what does its work")
 */
#define ACCEPTED_TABLE(ACCEPTED)                                                                                      \
    ACCEPTED("HAKMEM_TINY_FRONT_DIRECT",                                                                              \
             "a refill always moves blocks straight from a slab to the thread's stack; HAKMEM_FC_CAP and "            \
             "HAKMEM_FC_REFILL bound how many")                                                                       \
    ACCEPTED("HAKMEM_TINY_USE_SUPERSLAB", "every block up to 1 MiB lies in a SuperSlab")

#endif
