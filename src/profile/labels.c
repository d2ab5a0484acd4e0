#include "profile/labels.h"

#include <errno.h>

#include "profile/table.h"
#include "superslab/metadata.h"

#define LABEL_CHAINS 256u         /* a power of two */
#define LABEL_TOO_DEEP UINT32_MAX /* the name of every scope without an entry */

static struct label_set *chains[LABEL_CHAINS];  /* under profile_lock, as the next */
static struct labels *unused_labels;

/* ---- Texts ---- */

static bool keys_equal(const struct label *one, const struct label *other)
{
    return one->key_bytes == other->key_bytes && __builtin_memcmp(one->key, other->key, one->key_bytes) == 0;
}

/* Bytes of the character at `at`; 0: it is not UTF-8 (RFC 3629), or is a control character. */
static unsigned character_bytes(const uint8_t *at)
{
    unsigned more = at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 1 : at[0] < 0xf0 ? 2 : at[0] < 0xf5 ? 3 : 0;

    if (at[0] < 0x80)
        return at[0] >= 0x20 && at[0] != 0x7f;
    for (unsigned i = 1; i <= more; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    if ((at[0] == 0xc2 && at[1] < 0xa0) || (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] >= 0xa0) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] >= 0x90))
        return 0;
    return more ? more + 1 : 0;
}

/* Copies a text of at most `most` bytes; NULL is an empty one. Returns 0 or an errno. */
static int text_put(char *to, uint8_t *bytes, const char *from, unsigned most)
{
    const uint8_t *at = (const uint8_t *)(from ? from : "");
    unsigned used = 0;

    while (at[used]) {
        unsigned width = at[used] >= 0x20 && at[used] < 0x7f ? 1 : character_bytes(at + used);
        if (width == 0)
            return EILSEQ;
        if (used + width > most)
            return ENAMETOOLONG;
        for (; width; width--, used++)
            to[used] = (char)at[used];
    }
    to[used] = '\0';
    *bytes = (uint8_t)used;
    return 0;
}

/* ---- A thread's own ---- */

struct labels *labels_take(void)
{
    struct labels *labels;

    lock_acquire(&profile_lock);
    labels = unused_labels;
    if (labels)
        unused_labels = labels->next;
    lock_release(&profile_lock);
    return labels ? labels : metadata_allocate(sizeof *labels, _Alignof(struct labels));
}

void labels_give_back(struct labels *labels)
{
    labels->count = labels->scope = 0;
    labels->deeper = 0;
    labels->changing = labels->lost = false;
    labels->version++;
    lock_acquire(&profile_lock);
    labels->next = unused_labels;
    unused_labels = labels;
    lock_release(&profile_lock);
}

/* False: a signal handler has interrupted a change. */
static bool change_begin(struct labels *labels)
{
    if (labels->changing)
        return false;
    labels->changing = true;
    atomic_signal_fence(memory_order_seq_cst); /* Release: this thread's signal handlers see the change */
    return true;
}

static void change_end(struct labels *labels)
{
    labels->version++;
    atomic_signal_fence(memory_order_seq_cst); /* Release: as in change_begin */
    labels->changing = false;
}

/* Removes the key's entry from the scope. */
static void scope_remove(struct labels *labels, const struct label *key)
{
    for (unsigned i = labels->scope; i < labels->count; i++)
        if (labels->stack[i].kind < LABEL_IS_SCOPE && keys_equal(&labels->stack[i], key)) {
            labels->count--;
            __builtin_memmove(&labels->stack[i], &labels->stack[i + 1], (labels->count - i) * sizeof *key);
            return;
        }
}

static bool key_is_said(const struct labels *labels, const struct label *key)
{
    for (unsigned i = labels->count; i-- > 0 && labels->stack[i].kind != LABEL_IS_BOTTOM;)
        if (labels->stack[i].kind < LABEL_IS_SCOPE && keys_equal(&labels->stack[i], key))
            return labels->stack[i].kind != LABEL_IS_NOTHING;
    return false;
}

/* Sets the label. With an error, or without room, the key's old label must not stay in force: hides the key instead. */
static int put(struct labels *labels, struct label *label, int error)
{
    scope_remove(labels, label);
    if (error)
        label->kind = LABEL_IS_NOTHING;
    if (label->kind == LABEL_IS_NOTHING && !key_is_said(labels, label))
        return error;
    if (labels->count < LABEL_ENTRIES) {
        labels->stack[labels->count++] = *label;
        return error;
    }
    labels->lost |= key_is_said(labels, label);
    return E2BIG;
}

static bool is_reserved(const struct label *key)
{
    static const char *const names[] = { "lifetime_from", "hakmem.labels" };

    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++)
        if (__builtin_strcmp(key->key, names[i]) == 0)
            return true;
    return false;
}

static const struct label_set *set_held(struct labels *labels);

/* Whether the thread's set found no room; asked only once a set of any thread has found none. Does not wait for the
 * lock: this may be a signal handler that interrupted its holder. */
static bool is_without_room(struct labels *labels)
{
    const struct label_set *set = NULL;

    if (!atomic_load_explicit(&label_sets.full, memory_order_relaxed) || !lock_try(&profile_lock))
        return false;
    set = set_held(labels);
    lock_release(&profile_lock);
    return set != NULL && set == label_sets.lost;
}

int labels_put(struct labels *labels, enum label_kind kind, const char *key, const char *text, int64_t number)
{
    struct label label; /* not cleared, because its texts are long */
    int error = text_put(label.key, &label.key_bytes, key, LABEL_KEY_MOST);

    label.kind = (uint8_t)kind;
    label.number = number;
    label.value_bytes = 0;
    label.value[0] = '\0';
    if (error || label.key_bytes == 0 || is_reserved(&label))
        return error ? error : EINVAL;
    if (labels->deeper)
        return E2BIG;
    if (!change_begin(labels))
        return EAGAIN;
    error = put(labels, &label, text_put(label.value, &label.value_bytes, text, LABEL_VALUE_MOST));
    change_end(labels);
    return error ? error : is_without_room(labels) ? ENOSPC : 0;
}

int labels_clear(struct labels *labels)
{
    int error = 0;

    if (labels->deeper)
        return E2BIG;
    if (!change_begin(labels))
        return EAGAIN;
    labels->count = labels->scope;
    if (labels->scope == 0)
        labels->lost = false;
    else if (labels->count < LABEL_ENTRIES)
        labels->stack[labels->count++].kind = LABEL_IS_BOTTOM;
    else
        labels->lost = true, error = E2BIG;
    change_end(labels);
    return error;
}

unsigned labels_begin(struct labels *labels)
{
    unsigned scope = LABEL_TOO_DEEP;

    if (!change_begin(labels))
        return 0;
    if (labels->deeper || labels->count == LABEL_ENTRIES) {
        labels->deeper++;
    } else {
        struct label *entry = &labels->stack[labels->count++];
        entry->kind = LABEL_IS_SCOPE;
        entry->outer = labels->scope;
        scope = labels->scope = labels->count;
    }
    change_end(labels);
    return scope;
}

/* A scope's name is the place behind its entry, so 0 names none. Its end ends the scopes in it, too. */
void labels_end(struct labels *labels, unsigned scope)
{
    bool known = scope > 0 && scope <= labels->count && labels->stack[scope - 1].kind == LABEL_IS_SCOPE;

    if ((!known && (scope != LABEL_TOO_DEEP || labels->deeper == 0)) || !change_begin(labels))
        return;
    if (known) {
        labels->count = (uint8_t)(scope - 1);
        labels->scope = labels->stack[scope - 1].outer;
        labels->deeper = 0;
        labels->lost = false;
    } else {
        labels->deeper--;
    }
    change_end(labels);
}

/* ---- Sets; under profile_lock ---- */

static bool key_is_before(const struct label *one, const struct label *other)
{
    unsigned i = 0;

    while (one->key[i] && one->key[i] == other->key[i])
        i++;
    return (uint8_t)one->key[i] < (uint8_t)other->key[i];
}

/* Fills in the places of the entries in force, ordered by key. Returns their number. */
static unsigned order_labels(const struct labels *labels, uint8_t order[LABEL_ENTRIES])
{
    unsigned met = 0, left = 0;

    for (unsigned i = labels->count; i-- > 0 && labels->stack[i].kind != LABEL_IS_BOTTOM;) {
        unsigned at = 0;
        if (labels->stack[i].kind == LABEL_IS_SCOPE)
            continue;
        while (at < met && key_is_before(&labels->stack[order[at]], &labels->stack[i]))
            at++;
        if (at < met && keys_equal(&labels->stack[order[at]], &labels->stack[i]))
            continue;
        __builtin_memmove(&order[at + 1], &order[at], met++ - at);
        order[at] = (uint8_t)i;
    }
    for (unsigned i = 0; i < met; i++)
        if (labels->stack[order[i]].kind != LABEL_IS_NOTHING)
            order[left++] = order[i];
    return left;
}

static uint64_t hash_bytes(uint64_t hash, const char *bytes, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        hash = (hash ^ (uint8_t)bytes[i]) * UINT64_C(0x100000001b3);
    return hash * UINT64_C(0x9e3779b97f4a7c15);
}

static bool item_is(const struct label_set *set, unsigned number, const struct label *label)
{
    const struct label_item *item = &set->items[number];
    const char *text = label_texts(set) + item->text;

    return item->kind == label->kind && item->number == label->number && item->key_bytes == label->key_bytes &&
           item->value_bytes == label->value_bytes && __builtin_memcmp(text, label->key, label->key_bytes) == 0 &&
           __builtin_memcmp(text + label->key_bytes, label->value, label->value_bytes) == 0;
}

static struct label_set *set_make(const struct label *stack, const uint8_t *order, unsigned count, uint64_t hash)
{
    struct label_set *set;
    uint32_t text_bytes = 0;
    size_t bytes;
    char *text;

    for (unsigned i = 0; i < count; i++)
        text_bytes += (uint32_t)stack[order[i]].key_bytes + stack[order[i]].value_bytes;
    bytes = base_align_up(sizeof *set + count * sizeof *set->items + text_bytes, 8);
    set =
        label_sets.count < LABEL_SETS_MOST && label_sets.bytes + bytes <= LABEL_SETS_BYTES ? table_store(bytes) : NULL;
    if (!set)
        return NULL;
    set->hash = hash;
    set->count = count;
    set->text_bytes = text_bytes;
    text = (char *)&set->items[count];
    text_bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct label *label = &stack[order[i]];
        set->items[i] = (struct label_item){ .number = label->number, .text = text_bytes, .kind = label->kind,
                                             .key_bytes = label->key_bytes, .value_bytes = label->value_bytes };
        __builtin_memcpy(text + text_bytes, label->key, label->key_bytes);
        __builtin_memcpy(text + text_bytes + label->key_bytes, label->value, label->value_bytes);
        text_bytes += (uint32_t)label->key_bytes + label->value_bytes;
    }
    set->same = chains[hash % LABEL_CHAINS];
    chains[hash % LABEL_CHAINS] = set;
    /* Release, for pprof.c, which takes no lock: linked when it is whole (R7). */
    __atomic_store_n(label_sets.last ? &label_sets.last->next : &label_sets.first, set, __ATOMIC_RELEASE);
    label_sets.last = set;
    label_sets.count++;
    label_sets.bytes += bytes;
    return set;
}

static const struct label_set *set_of(const struct label *stack, const uint8_t *order, unsigned count)
{
    struct label_set *set;
    uint64_t hash = count;

    for (unsigned i = 0; i < count; i++) {
        const struct label *label = &stack[order[i]];
        hash = hash_bytes(hash ^ (uint64_t)label->number, label->key, label->key_bytes);
        hash = hash_bytes(hash ^ label->kind, label->value, label->value_bytes);
    }
    hash ^= hash >> 32;
    for (set = chains[hash % LABEL_CHAINS]; set; set = set->same) {
        unsigned same = 0;
        while (set->hash == hash && set->count == count && same < count && item_is(set, same, &stack[order[same]]))
            same++;
        if (set->hash == hash && same == count && set->count == count)
            return set;
    }
    return set_make(stack, order, count, hash);
}

/* The set for samples without their own. It is made before all other sets, while there is room. */
static const struct label_set *set_lost(void)
{
    static const struct label lost = {
        .kind = LABEL_IS_TEXT, .key_bytes = 13, .value_bytes = 4, .key = "hakmem.labels", .value = "lost"
    };

    if (!label_sets.lost)
        label_sets.lost = set_of(&lost, &(uint8_t){ 0 }, 1);
    return label_sets.lost;
}

static const struct label_set *set_held(struct labels *labels)
{
    uint8_t order[LABEL_ENTRIES];
    uint32_t version = labels->version;
    const struct label_set *set = NULL;
    unsigned count;

    if (labels->set_version == version)
        return labels->set;
    count = order_labels(labels, order);
    if (labels->lost || labels->deeper)
        set = set_lost();
    else if (count && set_lost()) {
        set = set_of(labels->stack, order, count);
        if (!set) {
            atomic_store_explicit(&label_sets.full, true, memory_order_relaxed);
            set = label_sets.lost;
        }
    }
    labels->set = set;
    labels->set_version = version;
    return set;
}

const struct label_set *labels_in_force(struct labels *labels)
{
    const struct label_set *set;

    if (HAK_LIKELY(labels == NULL) || labels->changing)
        return NULL;
    if (labels->set_version == labels->version)
        return labels->set;
    lock_acquire(&profile_lock);
    set = set_held(labels);
    lock_release(&profile_lock);
    return set;
}
