/*
 * json-trees: documents are parsed, kept for a while and torn down. A document is a tree of small nodes and a text of
 * 32 to 256 KiB. Keys and strings of nodes are separate blocks, and their lists of children grow by realloc. The text
 * grows by realloc as a writer fills it. One string in four is first unescaped into a short-lived buffer.
 *
 * Only one word in 256 bytes of the text is written, so that writing does not hide the allocator's part.
 */
#include "scenario.h"

enum {
    DOCUMENTS = 8,
    DEPTH_MOST = 7,
    NODES_LEAST = 128,
    NODES_OCTAVES = 4,
    CHILDREN_MOST = 12,
    LIST_FIRST = 4,
    KEY_LEAST = 3,
    KEY_MOST = 24,
    TEXT_FIRST = 4 * 1024,
    TEXT_LEAST = 32 * 1024,
    TEXT_OCTAVES = 3,
    TEXT_STEP = 256
};

enum kind { NUMBER, STRING, ARRAY, OBJECT };

struct value {
    uint64_t serial;
    uint64_t check; /* made of all fields here */
    uint64_t sum;   /* of a list's entries */
    char *key;      /* of a member of an object */
    union {
        char *text;
        struct value **children;
        uint64_t number;
    } as;
    uint32_t count; /* children or letters */
    uint8_t kind;
    uint8_t key_length;
};

static struct {
    struct value *root;
    uint64_t *text;
    size_t text_bytes;
} documents[DOCUMENTS];

/* ---- The tree ---- */

static struct value *value_new(struct scenario_run *run, bool member, unsigned depth, uint32_t *nodes_left);

/* Follows pointers only from a node with a correct check, so that a wrong allocator gets a message and no crash. */
static uint64_t value_check(const struct value *value)
{
    return ~value->serial ^ value->sum ^ (uintptr_t)value->key ^ value->as.number ^ (uint64_t)value->count << 16 ^
           (uint64_t)value->kind << 8 ^ value->key_length;
}

static void list_append(struct scenario_run *run, struct value *list, struct value *child)
{
    uint32_t count = list->count;
    /* Full when it holds 0, 4, 8, 16 ... */
    if (count == 0 || (count >= LIST_FIRST && (count & (count - 1)) == 0)) {
        uint32_t capacity = count == 0 ? LIST_FIRST : 2 * count;
        list->as.children = scenario_resize(run, list->as.children, capacity * sizeof(struct value *));
    }
    list->as.children[list->count++] = child;
    list->sum += (uintptr_t)child;
}

static void string_parse(struct scenario_run *run, struct value *value)
{
    value->count = (uint32_t)scenario_size(run, 2, 8) - 2;
    char *raw = NULL;
    if (value->serial % 4 == 0) {
        raw = scenario_new(run, 2 * value->count + 1);
        scenario_text_fill(raw, 0, value->count, value->serial);
    }
    value->as.text = scenario_new(run, value->count + 1);
    if (raw != NULL) {
        memcpy(value->as.text, raw, value->count + 1);
        scenario_free(run, raw);
    } else {
        scenario_text_fill(value->as.text, 0, value->count, value->serial);
    }
}

static void list_parse(struct scenario_run *run, struct value *value, unsigned depth, uint32_t *nodes_left)
{
    /* The root takes all nodes that are left. */
    uint32_t children = depth == 0 ? UINT32_MAX : scenario_between(run, 0, CHILDREN_MOST);
    while (children-- > 0 && *nodes_left > 0)
        list_append(run, value, value_new(run, value->kind == OBJECT, depth + 1, nodes_left));
}

/* Makes the node on the stack and writes it when it is complete. */
static struct value *value_new(struct scenario_run *run, bool member, unsigned depth, uint32_t *nodes_left)
{
    struct value *block = scenario_new(run, sizeof *block);
    struct value value = { .serial = run->serial++ };
    --*nodes_left;
    if (member) {
        value.key_length = (uint8_t)scenario_between(run, KEY_LEAST, KEY_MOST);
        value.key = scenario_new(run, value.key_length + 1u);
        scenario_text_fill(value.key, 0, value.key_length, value.serial + 1);
    }
    uint32_t choice = scenario_between(run, 0, 7);
    if (depth == 0)
        value.kind = ARRAY;
    else if (depth < DEPTH_MOST && choice < 3)
        value.kind = choice == 0 ? ARRAY : OBJECT;
    else
        value.kind = choice < 6 ? STRING : NUMBER;
    if (value.kind == STRING)
        string_parse(run, &value);
    else if (value.kind == NUMBER)
        value.as.number = value.serial;
    else
        list_parse(run, &value, depth, nodes_left);
    value.check = value_check(&value);
    *block = value;
    return block;
}

static void list_free(struct scenario_run *run, struct value *value);

static void value_free(struct scenario_run *run, struct value *value)
{
    if (value->check != value_check(value))
        bench_fail("node %p lost its contents", (void *)value);
    if (value->kind == STRING) {
        scenario_text_check(value->as.text, value->count, value->serial);
        scenario_free(run, value->as.text);
    } else if (value->kind != NUMBER && value->count > 0) {
        list_free(run, value);
    }
    if (value->key != NULL) {
        scenario_text_check(value->key, value->key_length, value->serial + 1);
        scenario_free(run, value->key);
    }
    scenario_free(run, value);
}

static void list_free(struct scenario_run *run, struct value *value)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < value->count; i++)
        sum += (uintptr_t)value->as.children[i];
    if (sum != value->sum)
        bench_fail("list %p of %u nodes lost its contents", (void *)value->as.children, value->count);
    for (uint32_t i = 0; i < value->count; i++)
        value_free(run, value->as.children[i]);
    scenario_free(run, value->as.children);
}

/* ---- The text ---- */

static void text_write(struct scenario_run *run, unsigned slot)
{
    size_t wanted = scenario_size(run, TEXT_LEAST, TEXT_OCTAVES);
    uint64_t *text = NULL;
    size_t at = 0, capacity = 0;

    while (capacity < wanted) {
        capacity = capacity == 0 ? TEXT_FIRST : 2 * capacity;
        if (capacity > wanted)
            capacity = wanted;
        text = scenario_resize(run, text, capacity);
        for (; at + sizeof *text <= capacity; at += TEXT_STEP)
            text[at / sizeof *text] = wanted ^ at;
    }
    documents[slot].text = text;
    documents[slot].text_bytes = wanted;
}

static void text_free(struct scenario_run *run, unsigned slot)
{
    size_t bytes = documents[slot].text_bytes;
    const uint64_t *text = documents[slot].text;
    for (size_t at = 0; at + sizeof *text <= bytes; at += TEXT_STEP)
        if (text[at / sizeof *text] != (bytes ^ at))
            bench_fail("text %p of %zu bytes lost its contents", (const void *)text, bytes);
    scenario_free(run, documents[slot].text);
}

/* ---- Documents ---- */

static void document_free(struct scenario_run *run, unsigned slot)
{
    if (documents[slot].root == NULL)
        return;
    value_free(run, documents[slot].root);
    text_free(run, slot);
    documents[slot].root = NULL;
}

static void iterate(struct scenario_run *run, uint64_t iterations)
{
    for (uint64_t i = 0; i < iterations; i++) {
        unsigned slot = scenario_between(run, 0, DOCUMENTS - 1);
        uint32_t nodes_left = (uint32_t)scenario_size(run, NODES_LEAST, NODES_OCTAVES);
        document_free(run, slot);
        documents[slot].root = value_new(run, false, 0, &nodes_left);
        text_write(run, slot);
    }
}

static void finish(struct scenario_run *run)
{
    for (unsigned slot = 0; slot < DOCUMENTS; slot++)
        document_free(run, slot);
}

const struct scenario scenario_json_trees = {
    "json-trees", "trees of a JSON parser and texts of 32-256 KiB grown by realloc; ITERATIONS documents", 2500,
    iterate, finish, NULL
};
