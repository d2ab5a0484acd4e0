/* Settings of jemalloc's that have a meaning in HAKMEM, and the heap profile. */
#include <hakmem/profile.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/types.h>

#include "base/format.h"
#include "front/purge_thread.h"
#include "front/seats.h"
#include "je/arenas.h"
#include "je/control.h"
#include "options/malloc_conf.h"
#include "profile/profile.h"

/* ---- opt.* whose values are HAKMEM's options ---- */

/* The row's number is the offset of the value in struct options. */
uint64_t settings_option(const struct control_call *call)
{
    return *(const uint64_t *)((const char *)&hak_options + call->row->number);
}

/* The row's number is the setting's place in `said`. */
uint64_t settings_said(const struct control_call *call)
{
    const bool said[] = { malloc_conf_said.abort_conf, malloc_conf_said.prof || hak_options.heap_profile,
                          malloc_conf_said.prof_active, malloc_conf_said.prof_final || hak_options.heap_profile,
                          malloc_conf_said.prof_leak || hak_options.leak_report,
                          hak_options.purge_thread == OPTION_ALWAYS };

    return said[call->row->number];
}

uint64_t settings_text(const struct control_call *call)
{
    static const char *const thp[] = {
        [OPTION_AUTO] = "default", [OPTION_NEVER] = "never", [OPTION_ALWAYS] = "always"
    };
    const char *const texts[] = { thp[hak_options.thp], hak_options.show_stats == OPTION_JSON ? "J" : "",
                                  malloc_conf_said.prof_prefix, malloc_conf_said.program_text };

    return (uintptr_t)texts[call->row->number];
}

/* ---- The purge thread ---- */

int settings_background_thread(const struct control_call *call, uint64_t wanted)
{
    (void)call;
    purge_thread_set(wanted, pthread_create);
    return 0;
}

/* There is at most one purge thread, however many a program allows. */
static _Atomic uint64_t background_threads = 1; /* Order: any; only kept for readers */

uint64_t settings_background_threads(const struct control_call *call)
{
    (void)call;
    return background_threads;
}

int settings_set_background_threads(const struct control_call *call, uint64_t wanted)
{
    (void)call;
    if (wanted == 0)
        return EINVAL;
    background_threads = wanted;
    return 0;
}

/* ---- Delays ---- */

uint64_t settings_decay(const struct control_call *call)
{
    (void)call;
    return front_purge_delay();
}

/* -1, which means never, sets the longest delay, an hour. All arenas share one delay. */
int settings_set_decay(const struct control_call *call, uint64_t wanted)
{
    (void)call;
    if ((int64_t)wanted < -1)
        return EFAULT;
    front_set_purge_delay(base_min(wanted, 3600000));
    return 0;
}

/* HAKMEM gives memory back in one step, so the delay of jemalloc's second step is always 0. */
int settings_set_no_decay(const struct control_call *call, uint64_t wanted)
{
    (void)call;
    return (int64_t)wanted < -1 ? EFAULT : 0;
}

/* ---- The heap profile ---- */

uint64_t settings_profile_active(const struct control_call *call)
{
    (void)call;
    return profile_on();
}

int settings_set_profile_active(const struct control_call *call, uint64_t wanted)
{
    (void)call;
    if ((wanted != 0) == profile_on())
        return 0;
    if (!wanted)
        hak_profile_stop();
    else if (hak_profile_start(0) != 0)
        return EAGAIN;
    return 0;
}

int settings_profile_dump(const struct control_call *call)
{
    char own[MALLOC_CONF_PREFIX_MOST + 16];
    const char *path = NULL;
    int error = control_write_only(call);

    if (!error && control_writes(call))
        error = control_take(call, &path, sizeof path);
    if (error)
        return error;
    if (path == NULL) {
        base_format(own, sizeof own, "%s.%%p.%%n.heap", malloc_conf_said.prof_prefix);
        path = own;
    }
    return hak_profile_write(path) == 0 ? 0 : EFAULT;
}

/* The logarithm of the samples' mean distance in bytes. Row number 1: that of the distance between files; -1: none. */
uint64_t settings_profile_rate(const struct control_call *call)
{
    uint64_t bytes = call->row->number ? hak_options.heap_profile_interval
                     : profile_on()    ? profile.mean
                                       : hak_options.heap_profile_rate;

    return bytes ? base_high_bit(bytes) : (uint64_t)-1;
}

/* With prof:true the profile begins with the program, even if no option of HAKMEM's wants a file or a report. */
__attribute__((constructor(102))) static void profile_at_start(void)
{
    if (malloc_conf_said.prof && malloc_conf_said.prof_active && !profile_on())
        (void)hak_profile_start(0);
}
