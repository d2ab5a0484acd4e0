/*
 * Labels: a thread's own description of its present work, such as tenant=a. A sample carries the labels in force.
 *
 * A thread's labels are a stack in memory that only this thread reads and writes. So setting a label takes no lock and
 * costs the same without a profile. A *scope* begins with an entry of its own on the stack. Labels set in the scope
 * hide earlier ones, and end with the scope. A *label set* is made when a sample is taken; equal sets are one.
 *
 * R7: a label set is never removed, moved or changed. Any process may read it without the lock.
 */
#ifndef HAK_PROFILE_LABELS_H
#define HAK_PROFILE_LABELS_H

#include "base/base.h"

#define LABEL_ENTRIES 24u     /* labels and scopes that a thread has at a time */
#define LABEL_KEY_MOST 47u    /* bytes */
#define LABEL_VALUE_MOST 127u /* bytes, also of a unit */
#define LABEL_SETS_MOST 4096u
#define LABEL_SETS_BYTES (768 * HAK_KIB)

enum label_kind {
    LABEL_IS_TEXT = 1, LABEL_IS_NUMBER,
    LABEL_IS_NOTHING, /* hides the key's label of the scopes around */
    LABEL_IS_SCOPE,   /* a scope begins */
    LABEL_IS_BOTTOM   /* hides all entries below */
};

struct label {
    uint8_t kind; /* enum label_kind */
    uint8_t key_bytes, value_bytes;
    uint8_t outer; /* of LABEL_IS_SCOPE: where the scope around it begins */
    int64_t number;
    char key[LABEL_KEY_MOST + 1], value[LABEL_VALUE_MOST + 1]; /* value: a text, or a number's unit */
};

struct label_set;

struct labels {
    struct labels *next; /* in the list of unused ones */
    const struct label_set *set; /* in force when `version` was set_version */
    uint32_t version, set_version;
    uint32_t deeper; /* scopes that began when the stack was full: no label can be set in them */
    uint8_t count;   /* entries */
    uint8_t scope;   /* the innermost scope's first entry */
    bool changing;   /* a signal handler that finds it set has interrupted a change */
    bool lost;       /* the stack had no room to hide an old value: the labels in force are unknown */
    struct label stack[LABEL_ENTRIES];
};

/* A label of a set. The texts follow all items of the set: for each item the key, then the value or unit. */
struct label_item {
    int64_t number;
    uint32_t text;   /* where its text begins */
    uint8_t kind;    /* LABEL_IS_TEXT or LABEL_IS_NUMBER */
    uint8_t key_bytes, value_bytes;
};

struct label_set {
    struct label_set *next; /* the one made after this one */
    struct label_set *same; /* the next in its hash chain */
    uint64_t hash;
    uint64_t strings;       /* number of its first string in the file being written; under profile_control */
    uint32_t count;         /* of items, ordered by key */
    uint32_t text_bytes;
    struct label_item items[];
};

/* All sets that samples have. Changed under profile_lock. */
struct label_sets {
    struct label_set *first, *last;
    const struct label_set *lost; /* carried by samples whose own set found no room; the first made, or NULL */
    size_t count, bytes;
    _Atomic bool full; /* Order: relaxed; a reader that finds it set takes profile_lock */
};
HAK_DATA struct label_sets label_sets;

HAK_INLINE const char *label_texts(const struct label_set *set) { return (const char *)&set->items[set->count]; }

/* Memory for a thread's labels, none in force; NULL when memory is out. */
HAK_HIDDEN struct labels *labels_take(void);
/* Gives it back. */
HAK_HIDDEN void labels_give_back(struct labels *labels);

/* Gives a thread's labels back, if it has any, and makes the pointer to them NULL. Most threads have none. */
HAK_INLINE void labels_leave(struct labels **labels)
{
    struct labels *mine = *labels;

    if (HAK_UNLIKELY(mine != NULL)) {
        *labels = NULL;
        labels_give_back(mine);
    }
}

/* Sets the key's label in the thread's innermost scope. kind: LABEL_IS_TEXT, LABEL_IS_NUMBER (text: its unit or NULL)
 * or LABEL_IS_NOTHING. Returns 0 or an errno of hak_profile_label. */
HAK_HIDDEN int labels_put(struct labels *labels, enum label_kind kind, const char *key, const char *text,
                          int64_t number);
/* Leaves no label in force in the innermost scope, not even one of the scopes around it. Returns 0 or an errno. */
HAK_HIDDEN int labels_clear(struct labels *labels);

/* Begins a scope. Returns its name for labels_end; 0: this is a signal handler that interrupted a change. */
HAK_HIDDEN unsigned labels_begin(struct labels *labels);
HAK_HIDDEN void labels_end(struct labels *labels, unsigned scope);

/* The set in force. NULL: none, a change is under way, or memory is out. labels may be NULL. Takes profile_lock. */
HAK_HIDDEN const struct label_set *labels_in_force(struct labels *labels);

#endif
