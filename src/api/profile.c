/* The names of hakmem/profile.h. */
#include "hakmem/profile.h"

#include <errno.h>

#include "front/sample.h"
#include "front/thread.h"
#include "options/options.h"
#include "profile/dump.h"

int hak_profile_start(size_t mean)
{
    return front_profile_set(mean ? mean : hak_options.heap_profile_rate);
}

void hak_profile_stop(void)
{
    (void)front_profile_set(0);
}

int hak_profile_write(const char *path)
{
    return dump_write(path);
}

int hak_profile_write_fd(int fd)
{
    return dump_write_fd(fd);
}

/* ---- Labels ---- */

_Static_assert(HAK_PROFILE_KEY_MOST == LABEL_KEY_MOST && HAK_PROFILE_VALUE_MOST == LABEL_VALUE_MOST &&
                   HAK_PROFILE_LABELS_MOST == LABEL_ENTRIES,
               "the header says what there is room for");

/* The calling thread's labels; NULL: it has none. */
static struct labels *own_labels(void) { return cache_own()->labels; }

static struct labels *make_own_labels(void)
{
    struct thread_cache *cache = thread_cache_own();

    if (cache == NULL)
        return NULL;
    if (HAK_UNLIKELY(cache->labels == NULL))
        cache->labels = labels_take();
    return cache->labels;
}

int hak_profile_label(const char *key, const char *text)
{
    bool some = text && text[0];
    struct labels *labels = some ? make_own_labels() : own_labels();

    if (labels == NULL)
        return some ? ENOMEM : 0;
    return labels_put(labels, some ? LABEL_IS_TEXT : LABEL_IS_NOTHING, key, text, 0);
}

int hak_profile_label_number(const char *key, int64_t number, const char *unit)
{
    struct labels *labels = make_own_labels();

    return labels ? labels_put(labels, LABEL_IS_NUMBER, key, unit, number) : ENOMEM;
}

int hak_profile_label_clear(void)
{
    struct labels *labels = own_labels();

    return labels ? labels_clear(labels) : 0;
}

unsigned hak_profile_scope_begin(void)
{
    struct labels *labels = make_own_labels();

    return labels ? labels_begin(labels) : 0;
}

void hak_profile_scope_end(unsigned scope)
{
    struct labels *labels = own_labels();

    if (labels)
        labels_end(labels, scope);
}
