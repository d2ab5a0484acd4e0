/* mallctl: the table of its names, and the functions that its rows call. */
#ifndef HAK_JE_CONTROL_H
#define HAK_JE_CONTROL_H

#include <errno.h>
#include <sys/types.h>

#include "base/base.h"

/* The types of values. control_bytes[] has their sizes. */
enum control_type {
    CONTROL_NONE,   /* no value: reading or writing it is an error */
    CONTROL_BOOL,
    CONTROL_U32,    /* unsigned, uint32_t */
    CONTROL_U64,    /* size_t, uint64_t, ssize_t, a pointer */
    CONTROL_TEXT,   /* const char * */
    CONTROL_OTHER   /* the row's function knows it */
};

/* Where the value comes from. */
enum control_source {
    CONTROL_VALUE,       /* value(), or without it `text`, or without it `number` */
    CONTROL_TOTAL,       /* struct figures at offset `number` */
    CONTROL_ARENA,       /* struct figures_arena of arena index[0] at offset `number` */
    CONTROL_SIZE,        /* struct figures_size of bin or lextent index[1] of arena index[0] at offset `number` */
};

struct control_row;

struct control_call {
    const struct control_row *row;
    uint32_t index[2]; /* the name's numbers */
    void *old;
    size_t *old_length;
    void *new;
    size_t new_length;
};

struct control_row {
    const char *name; /* with # in place of each number */
    uint8_t type;     /* enum control_type */
    uint8_t source;   /* enum control_source */
    uint64_t number;
    const char *text;
    uint64_t (*value)(const struct control_call *call);
    int (*set)(const struct control_call *call, uint64_t wanted); /* takes a new value; NULL: it is read-only */
    int (*act)(const struct control_call *call);                  /* or NULL; does the whole call */
};

/* Ended by a row without a name. */
HAK_DATA const struct control_row control_rows[];

/* ---- For the functions of rows ---- */

/* The caller wants to read, or to write. */
HAK_INLINE bool control_reads(const struct control_call *call) { return call->old != NULL && call->old_length != NULL; }
HAK_INLINE bool control_writes(const struct control_call *call) { return call->new != NULL; }

/* Gives the caller a value of `bytes` bytes. If its room has another size: as much as fits, and EINVAL. */
HAK_HIDDEN int control_give(const struct control_call *call, const void *value, size_t bytes);

/* Takes a value of `bytes` bytes from the caller. EINVAL: it has another size. */
HAK_HIDDEN int control_take(const struct control_call *call, void *value, size_t bytes);

/* EPERM: the caller writes a read-only value, reads a write-only one, or does either without a value. Else 0. */
HAK_HIDDEN int control_read_only(const struct control_call *call);
HAK_HIDDEN int control_write_only(const struct control_call *call);
HAK_HIDDEN int control_no_value(const struct control_call *call);

/* ---- Settings: control_settings.c ---- */
HAK_HIDDEN uint64_t settings_option(const struct control_call *call);
HAK_HIDDEN uint64_t settings_said(const struct control_call *call);
HAK_HIDDEN uint64_t settings_text(const struct control_call *call);
HAK_HIDDEN int settings_background_thread(const struct control_call *call, uint64_t wanted);
HAK_HIDDEN uint64_t settings_background_threads(const struct control_call *call);
HAK_HIDDEN int settings_set_background_threads(const struct control_call *call, uint64_t wanted);
HAK_HIDDEN uint64_t settings_decay(const struct control_call *call);
HAK_HIDDEN int settings_set_decay(const struct control_call *call, uint64_t wanted);
HAK_HIDDEN int settings_set_no_decay(const struct control_call *call, uint64_t wanted);
HAK_HIDDEN uint64_t settings_profile_active(const struct control_call *call);
HAK_HIDDEN int settings_set_profile_active(const struct control_call *call, uint64_t wanted);
HAK_HIDDEN int settings_profile_dump(const struct control_call *call);
HAK_HIDDEN uint64_t settings_profile_rate(const struct control_call *call);

/* ---- Threads, caches and arenas: control_arenas.c ---- */
HAK_HIDDEN uint64_t threads_arena(const struct control_call *call);
HAK_HIDDEN int threads_set_arena(const struct control_call *call, uint64_t wanted);
HAK_HIDDEN uint64_t threads_counter(const struct control_call *call);
HAK_HIDDEN uint64_t threads_cached(const struct control_call *call);
HAK_HIDDEN int threads_set_cached(const struct control_call *call, uint64_t wanted);
HAK_HIDDEN int threads_flush(const struct control_call *call);
HAK_HIDDEN int threads_idle(const struct control_call *call);
HAK_HIDDEN int tcaches_create(const struct control_call *call);
HAK_HIDDEN int tcaches_flush(const struct control_call *call);
HAK_HIDDEN int tcaches_destroy(const struct control_call *call);
HAK_HIDDEN int arenas_act_create(const struct control_call *call);
HAK_HIDDEN int arenas_act_lookup(const struct control_call *call);
HAK_HIDDEN int arenas_act_reset(const struct control_call *call);
HAK_HIDDEN int arenas_act_destroy(const struct control_call *call);
HAK_HIDDEN int arenas_act_purge(const struct control_call *call);
HAK_HIDDEN int arenas_act_decay(const struct control_call *call);
HAK_HIDDEN uint64_t arenas_initialized(const struct control_call *call);
HAK_HIDDEN int arenas_act_name(const struct control_call *call);
HAK_HIDDEN int arenas_set_dss(const struct control_call *call, uint64_t wanted);
/* What arenas_value returns, by the row's number. */
enum arenas_value { VALUE_PAGE, VALUE_ARENAS, VALUE_BIN_SIZE, VALUE_BIN_BLOCKS, VALUE_BIN_BYTES, VALUE_LEXTENT_SIZE };
HAK_HIDDEN uint64_t arenas_value(const struct control_call *call);

/* ---- Figures: control_figures.c ---- */
HAK_HIDDEN int figures_epoch(const struct control_call *call);
HAK_HIDDEN uint64_t figures_uptime(const struct control_call *call);
HAK_HIDDEN uint64_t figures_threads(const struct control_call *call);
HAK_HIDDEN uint64_t figures_purge_threads(const struct control_call *call);
HAK_HIDDEN int figures_utilization(const struct control_call *call);
HAK_HIDDEN int figures_utilization_batch(const struct control_call *call);

#endif
