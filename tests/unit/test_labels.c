/* Protects profile/labels.h: labels follow a model of scopes, and samples carry the labels in force. */
#include "heaps.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "front/thread.h"
#include "front/sample.h"
#include "front/fast.h"
#include "profile/table.h"

/* The labels in force as text: "key=value key=3unit". */
static const char *in_force(struct labels *labels)
{
    static char text[4096];
    const struct label_set *set = labels_in_force(labels);
    size_t used = 0;

    text[0] = '\0';
    for (unsigned i = 0; set && i < set->count; i++) {
        const struct label_item *item = &set->items[i];
        const char *key = label_texts(set) + item->text, *value = key + item->key_bytes;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%.*s=", i ? " " : "", item->key_bytes, key);
        if (item->kind == LABEL_IS_NUMBER)
            used += (size_t)snprintf(text + used, sizeof text - used, "%lld", (long long)item->number);
        used += (size_t)snprintf(text + used, sizeof text - used, "%.*s", item->value_bytes, value);
    }
    return text;
}

static int say(struct labels *labels, const char *key, const char *text)
{
    return labels_put(labels, LABEL_IS_TEXT, key, text, 0);
}
static int unsay(struct labels *labels, const char *key) { return labels_put(labels, LABEL_IS_NOTHING, key, NULL, 0); }

static void test_scopes(void)
{
    struct labels *labels;
    const struct label_set *set;
    unsigned outer, inner;

    core_begin();
    labels = labels_take();
    assert_string_equal(in_force(labels), "");
    assert_int_equal(say(labels, "tenant", "a"), 0);
    assert_int_equal(labels_put(labels, LABEL_IS_NUMBER, "rows", "bytes", -7), 0);
    assert_string_equal(in_force(labels), "rows=-7bytes tenant=a");
    set = labels_in_force(labels);
    assert_int_equal(say(labels, "tenant", "b"), 0);
    assert_string_equal(in_force(labels), "rows=-7bytes tenant=b");
    assert_int_equal(say(labels, "tenant", "a"), 0); /* the order of the calls does not matter: the set is the same */
    assert_ptr_equal(labels_in_force(labels), set);
    outer = labels_begin(labels);
    assert_int_equal(say(labels, "tenant", "c"), 0);
    assert_int_equal(say(labels, "query", "q"), 0);
    assert_string_equal(in_force(labels), "query=q rows=-7bytes tenant=c");
    inner = labels_begin(labels);
    assert_int_equal(unsay(labels, "tenant"), 0);
    assert_string_equal(in_force(labels), "query=q rows=-7bytes");
    assert_int_equal(labels_clear(labels), 0);
    assert_string_equal(in_force(labels), "");
    assert_int_equal(say(labels, "rows", "r"), 0);
    assert_string_equal(in_force(labels), "rows=r");
    labels_end(labels, inner);
    assert_string_equal(in_force(labels), "query=q rows=-7bytes tenant=c");
    labels_end(labels, inner); /* this scope has ended already */
    assert_string_equal(in_force(labels), "query=q rows=-7bytes tenant=c");
    (void)labels_begin(labels);
    assert_int_equal(say(labels, "x", "y"), 0);
    labels_end(labels, outer); /* ends the scopes that began in it, too */
    assert_ptr_equal(labels_in_force(labels), set);
    labels_end(labels, 0);
    assert_int_equal(labels_clear(labels), 0);
    assert_null(labels_in_force(labels));
}

/* A refused label leaves no old value in force. */
static void test_refusals(void)
{
    static const char *const no_utf8[] = { "\xff",         "a\x80",        "\xc0\xaf",
                                           "\xc2",         "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                           "\xe0\x80\x80", "\n",           "\x7f",
                                           "\xc2\x85" };
    char longest[LABEL_VALUE_MOST + 2] = { 0 };
    struct labels *labels;

    core_begin();
    labels = labels_take();
    for (unsigned i = 0; i < sizeof no_utf8 / sizeof no_utf8[0]; i++) {
        assert_int_equal(say(labels, "tenant", "a"), 0);
        assert_int_equal(say(labels, "tenant", no_utf8[i]), EILSEQ);
        assert_string_equal(in_force(labels), "");
        assert_int_equal(say(labels, no_utf8[i], "a"), EILSEQ);
    }
    assert_int_equal(say(labels, "\xc3\xa4\xe2\x82\xac", "\xf0\x9f\x98\x80"), 0);
    assert_string_equal(in_force(labels), "\xc3\xa4\xe2\x82\xac=\xf0\x9f\x98\x80");
    assert_int_equal(labels_clear(labels), 0);
    assert_int_equal(say(labels, "tenant", "a"), 0);
    (void)labels_begin(labels);
    memset(longest, 'x', LABEL_VALUE_MOST + 1);
    assert_int_equal(say(labels, "tenant", longest), ENAMETOOLONG);
    assert_string_equal(in_force(labels), "");
    longest[LABEL_VALUE_MOST] = '\0';
    assert_int_equal(say(labels, "tenant", longest), 0);
    longest[LABEL_KEY_MOST + 1] = '\0';
    assert_int_equal(say(labels, longest, "a"), ENAMETOOLONG);
    longest[LABEL_KEY_MOST] = '\0';
    assert_int_equal(say(labels, longest, "a"), 0);
    assert_int_equal(say(labels, NULL, "a"), EINVAL);
    assert_int_equal(say(labels, "", "a"), EINVAL);
    assert_int_equal(say(labels, "lifetime_from", "a"), EINVAL);
    assert_int_equal(say(labels, "hakmem.labels", "a"), EINVAL);
}

/* When a thread has no label entry left, samples carry no old value, and the enclosing scope's end restores all. */
static void test_no_entry_left(void)
{
    struct labels *labels;
    unsigned scope, deep[3];
    char key[8];

    core_begin();
    labels = labels_take();
    assert_int_equal(say(labels, "tenant", "a"), 0);
    scope = labels_begin(labels);
    for (unsigned i = 0; i < LABEL_ENTRIES - 2; i++) {
        (void)snprintf(key, sizeof key, "k%u", i);
        assert_int_equal(say(labels, key, "v"), 0);
    }
    assert_int_equal(say(labels, "k0", "w"), 0); /* replaces the first value */
    assert_int_equal(say(labels, "more", "v"), E2BIG);
    assert_null(strstr(in_force(labels), "lost"));
    for (unsigned i = 0; i < 3; i++)
        deep[i] = labels_begin(labels);
    assert_int_equal(say(labels, "k0", "x"), E2BIG);
    assert_int_equal(labels_clear(labels), E2BIG);
    assert_string_equal(in_force(labels), "hakmem.labels=lost");
    for (unsigned i = 3; i-- > 0;)
        labels_end(labels, deep[i]);
    assert_non_null(strstr(in_force(labels), "k0=w"));
    assert_int_equal(unsay(labels, "tenant"), E2BIG);
    assert_string_equal(in_force(labels), "hakmem.labels=lost");
    labels_end(labels, scope);
    assert_string_equal(in_force(labels), "tenant=a");
}

/* Sets and sites have a bound. Sets beyond it are marked as lost, and known sets keep their labels. */
static void test_bounds(void)
{
    uintptr_t frame = 0x1000;
    struct labels *labels;
    unsigned known = 0;

    core_begin();
    labels = labels_take();
    for (unsigned i = 0; i < LABEL_SETS_MOST + 10; i++) {
        int error = labels_put(labels, LABEL_IS_NUMBER, "id", NULL, i);
        bool lost = strcmp(in_force(labels), "hakmem.labels=lost") == 0;
        known += !lost;
        assert_int_equal(lost, i >= LABEL_SETS_MOST - 1);
        assert_int_equal(error, i > LABEL_SETS_MOST - 1 ? ENOSPC : 0); /* filling the table reports no loss */
    }
    assert_int_equal(known, LABEL_SETS_MOST - 1);
    assert_int_equal(label_sets.count, LABEL_SETS_MOST);
    assert_int_equal(labels_put(labels, LABEL_IS_NUMBER, "id", NULL, 5), 0);
    assert_string_equal(in_force(labels), "id=5");
    for (unsigned i = 0; i < 5 * LABEL_SETS_MOST; i++) {
        struct site *site;
        (void)labels_put(labels, LABEL_IS_NUMBER, "id", NULL, i % (LABEL_SETS_MOST - 1));
        frame = 0x1000 + i / (LABEL_SETS_MOST - 1);
        site = table_site(&frame, 1, labels_in_force(labels));
        assert_non_null(site);
        assert_ptr_equal(site->labels, i < LABELLED_SITES_MOST ? labels_in_force(labels) : label_sets.lost);
        assert_ptr_equal(site, table_site(&frame, 1, labels_in_force(labels)));
    }
    assert_true(profile_sites.count <= LABELLED_SITES_MOST + 2);
    frame = 0x1000;
    assert_null(table_site(&frame, 1, NULL)->labels);
}

/* Long values exhaust the bytes before the number of sets reaches its bound. */
static void test_bytes(void)
{
    char value[LABEL_VALUE_MOST + 1] = { 0 };
    struct labels *labels;

    core_begin();
    labels = labels_take();
    memset(value, 'x', sizeof value - 1);
    for (unsigned n = 0; n < LABEL_SETS_MOST; n++) {
        for (unsigned k = 0; k < 6; k++) {
            (void)snprintf(value, 5, "%04u", n);
            value[4] = (char)('a' + k);
            (void)say(labels, (char[]){ 'k', (char)('a' + k), 0 }, value);
        }
        (void)labels_in_force(labels);
    }
    assert_true(label_sets.count < LABEL_SETS_MOST && label_sets.bytes <= LABEL_SETS_BYTES &&
                label_sets.bytes > LABEL_SETS_BYTES / 2);
    assert_string_equal(in_force(labels), "hakmem.labels=lost");
}

/* A signal handler that interrupts a change cannot change labels, and its samples have none. */
static void test_interrupted(void)
{
    struct labels *labels;

    core_begin();
    labels = labels_take();
    assert_int_equal(say(labels, "a", "b"), 0);
    labels->changing = true;
    assert_int_equal(say(labels, "a", "c"), EAGAIN);
    assert_int_equal(labels_clear(labels), EAGAIN);
    assert_int_equal(labels_begin(labels), 0);
    assert_null(labels_in_force(labels));
    labels->changing = false;
    assert_string_equal(in_force(labels), "a=b");
}

/* Samples carry their thread's labels. The thread that takes the cache over starts without labels. */
static void test_samples(void)
{
    struct thread_cache *cache;
    size_t with[3] = { 0 };
    void *blocks[30];

    core_begin();
    assert_int_equal(front_profile_set(1), 0);
    front_free(front_malloc(100));
    cache = thread_cache_get();
    assert_null(cache->labels);
    cache->labels = labels_take();
    for (unsigned i = 0; i < 30; i++) {
        (void)labels_put(cache->labels, LABEL_IS_NUMBER, "n", NULL, i % 3);
        blocks[i] = front_malloc(100);
    }
    for (struct site *site = profile_sites.first; site; site = site->next)
        if (site->labels && site->in_use.objects)
            with[site->labels->items[0].number] += site->in_use.objects / WEIGHT_ONE;
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(with[i], 10);
    for (unsigned i = 0; i < 30; i++)
        front_free(blocks[i]);
    thread_release();
    assert_null(thread_cache_get()->labels);
    assert_ptr_equal(labels_take()->next, NULL);
}

/* Random calls against a model that keeps a whole table for each scope. */
static void test_model(void)
{
    enum { KEYS = 4, DEPTH = 3, STEPS = 200000 };
    int model[DEPTH + 1][KEYS], depth = 0; /* 0: no value */
    unsigned scopes[DEPTH + 1];
    struct labels *labels;

    core_begin();
    chance_begin();
    memset(model, 0, sizeof model);
    labels = labels_take();
    for (unsigned step = 0; step < STEPS; step++) {
        size_t what = chance_below(16), key = chance_below(KEYS);
        char name[2] = { (char)('a' + key), 0 }, expected[64] = "";
        if (what == 0 && depth < DEPTH) {
            memcpy(model[depth + 1], model[depth], sizeof model[0]);
            scopes[++depth] = labels_begin(labels);
        } else if (what == 1 && depth) {
            int to = (int)chance_below((size_t)depth);
            labels_end(labels, scopes[to + 1]);
            depth = to;
        } else if (what == 2) {
            memset(model[depth], 0, sizeof model[0]);
            assert_int_equal(labels_clear(labels), 0);
        } else if (what < 6) {
            model[depth][key] = 0;
            assert_int_equal(unsay(labels, name), 0);
        } else {
            model[depth][key] = (int)chance_below(3) + 1;
            assert_int_equal(labels_put(labels, LABEL_IS_NUMBER, name, NULL, model[depth][key]), 0);
        }
        for (unsigned k = 0; k < KEYS; k++)
            if (model[depth][k])
                (void)snprintf(expected + strlen(expected), 16, "%s%c=%d", expected[0] ? " " : "", 'a' + k,
                               model[depth][k]);
        assert_string_equal(in_force(labels), expected);
    }
    assert_true(label_sets.count <= 257);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_scopes),  core_unit_test(test_refusals), core_unit_test(test_no_entry_left),
        core_unit_test(test_bounds),  core_unit_test(test_bytes),    core_unit_test(test_interrupted),
        core_unit_test(test_samples), core_unit_test(test_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
