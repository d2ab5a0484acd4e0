/*
 * string-parts: strings are built from short-lived parts, in a buffer that begins with 8 bytes and doubles by
 * realloc, up to 8 to 64 bytes, for one string in 32 up to 4 KiB. A finished string replaces one of LIVE strings. After
 * every fourth one the beginnings of two strings are joined into a string that replaces a third one.
 */
#include "scenario.h"

enum { LIVE = 256, CAPACITY_FIRST = 8, USUAL_MOST = 64, LONG_MOST = 4096, LONG_ONE_IN = 32, PART_MOST = 16 };

/* A string: `head` letters of one mark, then letters of another mark if it was joined, and a 0. */
static struct string {
    char *letters;
    uint32_t head, length;
    uint64_t mark, tail_mark;
} strings[LIVE];

static void string_free(struct scenario_run *run, const struct string *string)
{
    const char *letters = string->letters;
    if (letters == NULL)
        return;
    char first = scenario_letter(string->mark);
    char last = scenario_letter(string->head == string->length ? string->mark : string->tail_mark);
    if (letters[0] != first || letters[string->head - 1] != first || letters[string->length - 1] != last ||
        (string->head < string->length && letters[string->head] != last) || letters[string->length] != '\0')
        bench_fail("string %p of %u letters lost its contents", (const void *)letters, string->length);
    scenario_free(run, string->letters);
}

/* Appends a part, which is a block of its own meanwhile, as a number converted to text would be. */
static uint32_t append_part(struct scenario_run *run, struct string *string, uint32_t capacity, uint32_t length)
{
    char *part = scenario_new(run, length + 1);
    scenario_text_fill(part, 0, length, string->mark);
    if (string->length + length + 1 > capacity) {
        capacity *= 2;
        string->letters = scenario_resize(run, string->letters, capacity);
    }
    memcpy(string->letters + string->length, part, length + 1);
    string->length += length;
    scenario_free(run, part);
    return capacity;
}

static struct string string_build(struct scenario_run *run)
{
    struct string string = { .mark = run->serial++ };
    uint32_t most = scenario_between(run, 0, LONG_ONE_IN - 1) == 0 ? LONG_MOST : USUAL_MOST;
    uint32_t wanted = scenario_between(run, CAPACITY_FIRST, most) - 1;
    uint32_t capacity = CAPACITY_FIRST;

    string.letters = scenario_new(run, capacity);
    while (string.length < wanted) {
        /* No part is longer than the buffer, so doubling it once makes room. */
        uint32_t part = scenario_between(run, 1, capacity < PART_MOST ? capacity : PART_MOST);
        capacity = append_part(run, &string, capacity, part < wanted - string.length ? part : wanted - string.length);
    }
    string.head = string.length;
    return string;
}

static struct string string_join(struct scenario_run *run, const struct string *left, const struct string *right)
{
    struct string joined = {
        .head = left->head, .length = left->head + right->head, .mark = left->mark, .tail_mark = right->mark
    };
    joined.letters = scenario_new(run, joined.length + 1);
    memcpy(joined.letters, left->letters, left->head);
    memcpy(joined.letters + left->head, right->letters, right->head);
    joined.letters[joined.length] = '\0';
    return joined;
}

static void replace(struct scenario_run *run, struct string with)
{
    struct string *string = &strings[scenario_between(run, 0, LIVE - 1)];
    string_free(run, string);
    *string = with;
}

static void iterate(struct scenario_run *run, uint64_t iterations)
{
    for (uint64_t i = 0; i < iterations; i++) {
        replace(run, string_build(run));
        const struct string *left = &strings[scenario_between(run, 0, LIVE - 1)];
        const struct string *right = &strings[scenario_between(run, 0, LIVE - 1)];
        if (i % 4 == 3 && left->letters != NULL && right->letters != NULL)
            replace(run, string_join(run, left, right));
    }
}

static void finish(struct scenario_run *run)
{
    for (unsigned i = 0; i < LIVE; i++) {
        string_free(run, &strings[i]);
        strings[i] = (struct string){ 0 };
    }
}

const struct scenario scenario_string_parts = {
    "string-parts", "strings of 8-64 B, some to 4 KiB, from short-lived parts; ITERATIONS strings", 1000000,
    iterate, finish, NULL
};
