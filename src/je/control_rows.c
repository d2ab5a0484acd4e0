/* The names of mallctl. docs/jemalloc.md explains them. */
#include <hakmem/jemalloc.h>

#include "base/version.h"
#include "config/limits.h"
#include "je/control.h"
#include "je/figures.h"
#include "options/options.h"

/* A row. kind: its type without CONTROL_. way: its source without CONTROL_. */
#define ROW(kind, name, way, number, text, value, set, act) \
    { name, CONTROL_##kind, CONTROL_##way, number, text, value, set, act }
/* A number or a text that never changes */
#define CONSTANT(kind, name, number) ROW(kind, name, VALUE, number, NULL, NULL, NULL, NULL)
#define TEXT(name, text) ROW(TEXT, name, VALUE, 0, text, NULL, NULL, NULL)
/* The result of a function that gets the row's number; a setting of HAKMEM's */
#define VALUE(kind, name, value, number) ROW(kind, name, VALUE, number, NULL, value, NULL, NULL)
#define OPTION(kind, name, field) VALUE(kind, name, settings_option, offsetof(struct options, field))
/* A value that a program may write, too */
#define SETTING(kind, name, value, set) ROW(kind, name, VALUE, 0, NULL, value, set, NULL)
/* A function that does the whole call; one for a name without a value */
#define ACT(name, act) ROW(OTHER, name, VALUE, 0, NULL, NULL, NULL, act)
#define DO(name, act) ROW(NONE, name, VALUE, 0, NULL, NULL, NULL, act)
/* Figures: of the process, of an arena, of a bin or a lextent of an arena */
#define TOTAL(name, field) ROW(U64, name, TOTAL, offsetof(struct figures, field), NULL, NULL, NULL, NULL)
#define ARENA(name, field) ROW(U64, name, ARENA, offsetof(struct figures_arena, field), NULL, NULL, NULL, NULL)
#define SIZE(name, field) ROW(U64, name, SIZE, offsetof(struct figures_size, field), NULL, NULL, NULL, NULL)

const struct control_row control_rows[] = {
    /* The process */
    TEXT("version", JEMALLOC_VERSION " (HAKMEM " BASE_VERSION_STRING ")"),
    ACT("epoch", figures_epoch),
    SETTING(BOOL, "background_thread", figures_purge_threads, settings_background_thread),
    SETTING(U64, "max_background_threads", settings_background_threads, settings_set_background_threads),
    /* config.* */
    CONSTANT(BOOL, "config.cache_oblivious", 0),
    CONSTANT(BOOL, "config.debug", HAK_DEBUG),
    CONSTANT(BOOL, "config.fill", 0),
    CONSTANT(BOOL, "config.lazy_lock", 0),
    CONSTANT(BOOL, "config.opt_safety_checks", 1),
    CONSTANT(BOOL, "config.opt_size_checks", 1),
    CONSTANT(BOOL, "config.prof", 1),
    CONSTANT(BOOL, "config.prof_libgcc", 1),
    CONSTANT(BOOL, "config.prof_libunwind", 0),
    CONSTANT(BOOL, "config.stats", 1),
    CONSTANT(BOOL, "config.utrace", 0),
    CONSTANT(BOOL, "config.xmalloc", 0),
    TEXT("config.malloc_conf", ""),
    /* opt.* */
    CONSTANT(BOOL, "opt.abort", 0),
    CONSTANT(BOOL, "opt.cache_oblivious", 0),
    CONSTANT(BOOL, "opt.prof_gdump", 0),
    CONSTANT(BOOL, "opt.prof_leak_error", 0),
    CONSTANT(BOOL, "opt.prof_thread_active_init", 0),
    CONSTANT(BOOL, "opt.utrace", 0),
    CONSTANT(BOOL, "opt.xmalloc", 0),
    CONSTANT(BOOL, "opt.zero", 0),
    CONSTANT(BOOL, "opt.trust_madvise", 0),
    VALUE(BOOL, "opt.abort_conf", settings_said, 0),
    VALUE(BOOL, "opt.prof", settings_said, 1),
    VALUE(BOOL, "opt.prof_active", settings_said, 2),
    VALUE(BOOL, "opt.prof_final", settings_said, 3),
    VALUE(BOOL, "opt.prof_leak", settings_said, 4),
    CONSTANT(BOOL, "opt.retain", 1),
    CONSTANT(BOOL, "opt.tcache", 1),
    CONSTANT(BOOL, "opt.prof_accum", 1),
    OPTION(BOOL, "opt.confirm_conf", verbose),
    OPTION(BOOL, "opt.stats_print", show_stats),
    VALUE(BOOL, "opt.background_thread", settings_said, 5),
    CONSTANT(U64, "opt.max_background_threads", 1),
    CONSTANT(U32, "opt.narenas", 1),
    CONSTANT(U64, "opt.oversize_threshold", 0),
    CONSTANT(U64, "opt.tcache_max", 8 * UNIT_SIZE),
    CONSTANT(U64, "opt.lg_tcache_max", 19),
    CONSTANT(U64, "opt.stats_interval", (uint64_t)-1),
    TEXT("opt.stats_interval_opts", ""),
    OPTION(U64, "opt.dirty_decay_ms", purge_delay),
    CONSTANT(U64, "opt.muzzy_decay_ms", 0),
    VALUE(U64, "opt.lg_prof_sample", settings_profile_rate, 0),
    VALUE(U64, "opt.lg_prof_interval", settings_profile_rate, 1),
    TEXT("opt.dss", "disabled"),
    TEXT("opt.junk", "false"),
    TEXT("opt.metadata_thp", "disabled"),
    TEXT("opt.percpu_arena", "disabled"),
    TEXT("opt.zero_realloc", "free"),
    VALUE(TEXT, "opt.thp", settings_text, 0),
    VALUE(TEXT, "opt.stats_print_opts", settings_text, 1),
    VALUE(TEXT, "opt.prof_prefix", settings_text, 2),
    VALUE(TEXT, "opt.malloc_conf.global_var", settings_text, 3),
    /* The calling thread, and explicit caches */
    SETTING(U32, "thread.arena", threads_arena, threads_set_arena),
    VALUE(U64, "thread.allocated", threads_counter, 0),
    VALUE(U64, "thread.deallocated", threads_counter, 1),
    VALUE(U64, "thread.allocatedp", threads_counter, 2),
    VALUE(U64, "thread.deallocatedp", threads_counter, 3),
    SETTING(BOOL, "thread.tcache.enabled", threads_cached, threads_set_cached),
    DO("thread.tcache.flush", threads_flush),
    DO("thread.idle", threads_idle),
    ACT("tcache.create", tcaches_create),
    ACT("tcache.flush", tcaches_flush),
    ACT("tcache.destroy", tcaches_destroy),
    /* arena.<i>.* */
    VALUE(BOOL, "arena.#.initialized", arenas_initialized, 0),
    DO("arena.#.decay", arenas_act_decay),
    DO("arena.#.purge", arenas_act_purge),
    DO("arena.#.reset", arenas_act_reset),
    DO("arena.#.destroy", arenas_act_destroy),
    ROW(TEXT, "arena.#.dss", VALUE, 0, "disabled", NULL, arenas_set_dss, NULL),
    SETTING(U64, "arena.#.dirty_decay_ms", settings_decay, settings_set_decay),
    SETTING(U64, "arena.#.muzzy_decay_ms", NULL, settings_set_no_decay),
    ACT("arena.#.name", arenas_act_name),
    /* arenas.* */
    VALUE(U32, "arenas.narenas", arenas_value, VALUE_ARENAS),
    SETTING(U64, "arenas.dirty_decay_ms", settings_decay, settings_set_decay),
    SETTING(U64, "arenas.muzzy_decay_ms", NULL, settings_set_no_decay),
    CONSTANT(U64, "arenas.quantum", BLOCK_ALIGN),
    VALUE(U64, "arenas.page", arenas_value, VALUE_PAGE),
    CONSTANT(U64, "arenas.hugepage", SUPERSLAB_SIZE),
    CONSTANT(U64, "arenas.tcache_max", 8 * UNIT_SIZE),
    CONSTANT(U32, "arenas.nbins", FIGURES_BINS),
    CONSTANT(U32, "arenas.nhbins", CLASS_SPAN_8),
    CONSTANT(U32, "arenas.nlextents", FIGURES_LEXTENTS),
    VALUE(U64, "arenas.bin.#.size", arenas_value, VALUE_BIN_SIZE),
    VALUE(U32, "arenas.bin.#.nregs", arenas_value, VALUE_BIN_BLOCKS),
    VALUE(U64, "arenas.bin.#.slab_size", arenas_value, VALUE_BIN_BYTES),
    CONSTANT(U32, "arenas.bin.#.nshards", 1),
    VALUE(U64, "arenas.lextent.#.size", arenas_value, VALUE_LEXTENT_SIZE),
    ACT("arenas.create", arenas_act_create),
    ACT("arenas.lookup", arenas_act_lookup),
    /* prof.* */
    SETTING(BOOL, "prof.active", settings_profile_active, settings_set_profile_active),
    ACT("prof.dump", settings_profile_dump),
    VALUE(U64, "prof.lg_sample", settings_profile_rate, 0),
    OPTION(U64, "prof.interval", heap_profile_interval),
    /* stats.* */
    TOTAL("stats.allocated", allocated),
    TOTAL("stats.active", active),
    TOTAL("stats.metadata", metadata),
    TOTAL("stats.resident", resident),
    TOTAL("stats.mapped", mapped),
    TOTAL("stats.retained", retained),
    CONSTANT(U64, "stats.metadata_thp", 0),
    CONSTANT(U64, "stats.zero_reallocs", 0),
    VALUE(U64, "stats.background_thread.num_threads", figures_purge_threads, 0),
    /* stats.arenas.<i>.* */
    VALUE(U32, "stats.arenas.#.nthreads", figures_threads, 0),
    VALUE(U64, "stats.arenas.#.uptime", figures_uptime, 0),
    TEXT("stats.arenas.#.dss", "disabled"),
    OPTION(U64, "stats.arenas.#.dirty_decay_ms", purge_delay),
    CONSTANT(U64, "stats.arenas.#.muzzy_decay_ms", 0),
    ARENA("stats.arenas.#.pactive", pactive),
    ARENA("stats.arenas.#.pdirty", pdirty),
    ARENA("stats.arenas.#.mapped", mapped),
    ARENA("stats.arenas.#.retained", retained),
    ARENA("stats.arenas.#.resident", resident),
    ARENA("stats.arenas.#.base", base),
    ARENA("stats.arenas.#.tcache_bytes", tcache_bytes),
    ARENA("stats.arenas.#.dirty_purged", dirty_purged),
    CONSTANT(U64, "stats.arenas.#.pmuzzy", 0),
    CONSTANT(U64, "stats.arenas.#.muzzy_purged", 0),
    CONSTANT(U64, "stats.arenas.#.muzzy_npurge", 0),
    CONSTANT(U64, "stats.arenas.#.muzzy_nmadvise", 0),
    CONSTANT(U64, "stats.arenas.#.internal", 0),
    CONSTANT(U64, "stats.arenas.#.metadata_thp", 0),
    CONSTANT(U64, "stats.arenas.#.tcache_stashed_bytes", 0),
    CONSTANT(U64, "stats.arenas.#.abandoned_vm", 0),
    ARENA("stats.arenas.#.small.allocated", small.allocated),
    ARENA("stats.arenas.#.small.nmalloc", small.nmalloc),
    ARENA("stats.arenas.#.small.ndalloc", small.ndalloc),
    ARENA("stats.arenas.#.small.nrequests", small.nrequests),
    ARENA("stats.arenas.#.small.nfills", small.nfills),
    ARENA("stats.arenas.#.small.nflushes", small.nflushes),
    ARENA("stats.arenas.#.large.allocated", large.allocated),
    ARENA("stats.arenas.#.large.nmalloc", large.nmalloc),
    ARENA("stats.arenas.#.large.ndalloc", large.ndalloc),
    ARENA("stats.arenas.#.large.nrequests", large.nrequests),
    ARENA("stats.arenas.#.large.nfills", large.nfills),
    ARENA("stats.arenas.#.large.nflushes", large.nflushes),
    SIZE("stats.arenas.#.bins.#.nmalloc", nmalloc),
    SIZE("stats.arenas.#.bins.#.ndalloc", ndalloc),
    SIZE("stats.arenas.#.bins.#.nrequests", nrequests),
    SIZE("stats.arenas.#.bins.#.nfills", nfills),
    SIZE("stats.arenas.#.bins.#.nflushes", nflushes),
    SIZE("stats.arenas.#.bins.#.nslabs", nslabs),
    SIZE("stats.arenas.#.bins.#.nreslabs", nreslabs),
    SIZE("stats.arenas.#.bins.#.curregs", curregs),
    SIZE("stats.arenas.#.bins.#.curslabs", curslabs),
    SIZE("stats.arenas.#.bins.#.nonfull_slabs", nonfull_slabs),
    SIZE("stats.arenas.#.lextents.#.nmalloc", nmalloc),
    SIZE("stats.arenas.#.lextents.#.ndalloc", ndalloc),
    SIZE("stats.arenas.#.lextents.#.nrequests", nrequests),
    SIZE("stats.arenas.#.lextents.#.curlextents", curregs),
    /* How well slabs are used */
    ACT("experimental.utilization.query", figures_utilization),
    ACT("experimental.utilization.batch_query", figures_utilization_batch),
    { NULL, 0, 0, 0, NULL, NULL, NULL, NULL },
};
