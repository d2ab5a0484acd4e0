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

int settings_text(const struct control_call *call)
{
    static const char *const thp[] = {
        [OPTION_AUTO] = "default", [OPTION_NEVER] = "never", [OPTION_ALWAYS] = "always"
    };
    const char *text = "";
    int error = control_read_only(call);

    switch (call->row->number) {
    case 0:
        text = thp[hak_options.thp];
        break;
    case 1:
        text = hak_options.show_stats == OPTION_JSON ? "J" : "";
        break;
    case 2:
        text = malloc_conf_said.prof_prefix;
        break;
    case 3:
        text = malloc_conf_said.program_text;
        break;
    }
    return error ? error : control_give(call, &text, sizeof(const char *));
}

/* ---- The purge thread ---- */

int settings_background_thread(const struct control_call *call)
{
    bool is = purge_thread_is_there(), wanted, taken;
    int error = control_exchange(call, &is, &wanted, sizeof is, &taken);

    if (taken)
        purge_thread_set(wanted, pthread_create);
    return error;
}

/* There is at most one purge thread, however many a program allows. */
int settings_max_background_threads(const struct control_call *call)
{
    static _Atomic size_t most = 1; /* Order: any; only kept for readers */
    size_t is = most, wanted;
    bool taken;
    int error = control_exchange(call, &is, &wanted, sizeof is, &taken);

    if (error || !taken)
        return error;
    if (wanted == 0)
        return EINVAL;
    most = wanted;
    return 0;
}

/* ---- Delays ---- */

/* -1, which means never, sets the longest delay, an hour. All arenas share one delay. */
int settings_decay(const struct control_call *call)
{
    ssize_t is = (ssize_t)front_purge_delay(), wanted;
    bool taken;
    int error = control_exchange(call, &is, &wanted, sizeof is, &taken);

    if (error || !taken)
        return error;
    if (wanted < -1)
        return EFAULT;
    front_set_purge_delay(wanted < 0 || wanted > 3600000 ? 3600000 : (uint64_t)wanted);
    return 0;
}

/* HAKMEM gives memory back in one step, so the delay of jemalloc's second step is always 0. */
int settings_no_decay(const struct control_call *call)
{
    ssize_t is = 0, wanted;
    bool taken;
    int error = control_exchange(call, &is, &wanted, sizeof is, &taken);

    return error ? error : taken && wanted < -1 ? EFAULT : 0;
}

/* ---- The heap profile ---- */

int settings_profile_active(const struct control_call *call)
{
    bool is = profile_on(), wanted, taken;
    int error = control_exchange(call, &is, &wanted, sizeof is, &taken);

    if (error || !taken || wanted == is)
        return error;
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
