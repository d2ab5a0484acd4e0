/* Protects profile/pprof.c and profile/sink.c: every number of a written profile, read back without the library. */
#define _GNU_SOURCE
#include "heaps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/version.h"
#include "os/maps.h"
#include "os/process.h"
#include "os/unwind.h"
#include "profile/dump.h"
#include "profile/pprof.h"
#include "profile/python.h"
#include "profile/sink.h"
#include "wire.h"

enum { SAMPLE_TYPE = 1, SAMPLE, MAPPING, LOCATION, FUNCTION, STRING, DROP, TIME = 9, DURATION, PERIOD_TYPE, PERIOD,
       COMMENT, DEFAULT_TYPE }; /* of a profile */
enum { SAMPLE_LOCATIONS = 1, SAMPLE_VALUES, SAMPLE_LABEL };
enum { LABEL_KEY = 1, LABEL_TEXT, LABEL_NUMBER, LABEL_UNIT };
enum { ID = 1, MAPPING_START, MAPPING_LIMIT, MAPPING_OFFSET, MAPPING_FILE, MAPPING_BUILD_ID }; /* of a mapping */
enum { LOCATION_MAPPING = 2, LOCATION_ADDRESS, LOCATION_LINE };
enum { ALLOCATED, ALLOCATED_BYTES, IN_USE, IN_USE_BYTES, FREED, LIFETIME, PEAK, PEAK_BYTES, OWN_FREED, VALUES };

static int file;

static struct wire profile_written(unsigned *blocks)
{
    assert_int_equal(ftruncate(file, 0), 0);
    assert_int_equal(lseek(file, 0, SEEK_SET), 0);
    assert_int_equal(dump_write_fd(file), 0);
    return wire_read(file, blocks);
}

/* Starts a profile of 4 KiB at the fake clock's 5 s, whose stacks are `by_tables`. */
static void begin(bool by_tables)
{
    core_begin();
    file = memfd_create("profile", 0);
    assert_true(file >= 0);
    fake_advance(5000 * MILLISECOND);
    os_unwind_prepare(by_tables ? UNWIND_TABLES : UNWIND_POINTERS, false);
    assert_int_equal(os_unwind_by_tables(), by_tables);
    profile.mean = 4096;
    table_begin_peak(0, true);
    dump_begin();
}

/* An address in this program's code. */
static uintptr_t code_at(size_t offset) { return (uintptr_t)begin + offset; }

static uint64_t now_ms(void) { return os_now_coarse() / MILLISECOND; }

/* A sample of `weight` blocks of `size` bytes. */
static void insert(struct site *site, uintptr_t address, size_t size, uint64_t weight)
{
    struct record record = {
        .address = address, .site = site, .size = size, .weight = weight * WEIGHT_ONE, .born_ms = now_ms()
    };

    assert_true(table_insert(&record));
}

static void end(uintptr_t address)
{
    struct record removed;

    assert_true(table_remove((void *)address, now_ms(), (struct caller){ 0 }, &removed));
}

static void assert_words(struct wire profile_, uint64_t number, const char *words)
{
    assert_string_equal(wire_string(profile_, number), words);
}

/* ---- The head ---- */

static void check_head(bool by_tables)
{
    static const char *const types[VALUES][2] = {
        { "alloc_objects", "count" }, { "alloc_space", "bytes" }, { "inuse_objects", "count" },
        { "inuse_space", "bytes" },   { "freed_objects", "count" }, { "lifetime", "milliseconds" },
        { "peak_objects", "count" },  { "peak_space", "bytes" },    { "own_freed_objects", "count" },
    };
    struct wire found, type, comments;
    struct wire_field field;
    const char *expected[3];
    uint64_t before = os_time_of_day();
    char process[32], samples[200];
    unsigned comment = 0, blocks;

    begin(by_tables);
    (void)snprintf(process, sizeof process, "process %d", getpid());
    expected[0] = "hakmem " BASE_VERSION_STRING;
    (void)snprintf(samples, sizeof samples,
                   "samples are 4096 bytes apart in the mean (HAKMEM_HEAP_PROFILE_RATE); stacks by %s",
                   by_tables ? "unwind tables" : "frame pointers");
    expected[1] = samples;
    expected[2] = process;
    fake_advance(1234567);
    found = profile_written(&blocks);
    assert_int_equal(blocks, 1);
    assert_words(found, 0, "");
    assert_int_equal(wire_count(found, SAMPLE_TYPE), VALUES);
    for (unsigned i = 0; i < VALUES; i++) {
        type = wire_part(found, SAMPLE_TYPE, i);
        assert_words(found, wire_number(type, 1), types[i][0]);
        assert_words(found, wire_number(type, 2), types[i][1]);
    }
    type = wire_part(found, PERIOD_TYPE, 0);
    assert_words(found, wire_number(type, 1), "space");
    assert_words(found, wire_number(type, 2), "bytes");
    assert_int_equal(wire_number(found, PERIOD), 4096);
    assert_int_equal(wire_number(found, DURATION), 1234567);
    assert_words(found, wire_number(found, DEFAULT_TYPE), "inuse_space");
    assert_has(wire_string(found, wire_number(found, DROP)), "hak_.*|malloc|calloc|");
    assert_true(wire_number(found, TIME) >= before && wire_number(found, TIME) <= os_time_of_day());
    for (comments = found; wire_next(&comments, &field);)
        if (field.number == COMMENT) {
            assert_true(comment < 3);
            assert_words(found, field.value, expected[comment++]);
        }
    assert_int_equal(comment, 3);
    assert_int_equal(wire_count(found, SAMPLE) + wire_count(found, MAPPING) + wire_count(found, LOCATION), 0);
}

static void test_head_tables(void) { check_head(true); }
static void test_head_pointers(void) { check_head(false); }

/* ---- Samples ---- */

/* The sample whose innermost location is the call before `address`, counted from 0 among those. */
static struct wire sample_of(struct wire found, uintptr_t address, unsigned number)
{
    uint64_t locations[STACK_MOST];
    struct wire_field field;

    for (struct wire rest = found; wire_next(&rest, &field);)
        if (field.number == SAMPLE &&
            wire_numbers(wire_part(field.bytes, SAMPLE_LOCATIONS, 0), locations, STACK_MOST) &&
            locations[0] == address - 1 && number-- == 0)
            return field.bytes;
    fail_msg("no sample at %#zx", (size_t)address);
    return found;
}

static void assert_values(struct wire sample, const uint64_t expected[VALUES])
{
    uint64_t values[VALUES];

    assert_int_equal(wire_numbers(wire_part(sample, SAMPLE_VALUES, 0), values, VALUES), VALUES);
    for (unsigned i = 0; i < VALUES; i++)
        assert_int_equal(values[i], expected[i]);
}

/* Blocks and bytes: allocated, in use, freed with their lifetimes, and in use at the peak. */
static void test_values(void)
{
    struct site *kept, *churned, *small;
    struct wire found, label, rest;
    unsigned comments = 0;

    begin(true);
    kept = table_site(&(uintptr_t){ code_at(1) }, 1, NULL);
    churned = table_site(&(uintptr_t){ code_at(2) }, 1, NULL);
    small = table_site(&(uintptr_t){ code_at(3) }, 1, NULL);
    (void)table_site(&(uintptr_t){ code_at(4) }, 1, NULL); /* without a block: no sample */
    fake_advance(2000 * MILLISECOND);
    insert(kept, 0x1000, 100, 3);
    insert(churned, 0x2000, 5000, 2);
    insert(churned, 0x3000, 5000, 2);
    end(0x2000); /* in the same millisecond */
    fake_advance(1000 * MILLISECOND);
    end(0x3000);
    insert(kept, 0x4000, 200, 1);
    insert(small, 0x5000, 1, 1);
    found = profile_written(NULL);
    assert_int_equal(wire_count(found, SAMPLE), 6); /* one for each size of a site, and for each bucket of lifetimes */
    assert_values(sample_of(found, code_at(1), 0), (uint64_t[VALUES]){ 3, 300, 3, 300, [PEAK] = 3, 300 });
    assert_values(sample_of(found, code_at(1), 1), (uint64_t[VALUES]){ 1, 200, 1, 200 });
    assert_values(sample_of(found, code_at(2), 0), (uint64_t[VALUES]){ 4, 20000, [PEAK] = 4, 20000 });
    assert_values(sample_of(found, code_at(2), 1), (uint64_t[VALUES]){ [FREED] = 2, 0 });
    assert_values(sample_of(found, code_at(2), 2), (uint64_t[VALUES]){ [FREED] = 2, 2000 });
    assert_values(sample_of(found, code_at(3), 0), (uint64_t[VALUES]){ 1, 1, 1, 1 });
    assert_int_equal(wire_count(sample_of(found, code_at(2), 0), SAMPLE_LABEL), 1);
    label = wire_part(sample_of(found, code_at(2), 0), SAMPLE_LABEL, 0);
    assert_words(found, wire_number(label, LABEL_KEY), "bytes");
    assert_words(found, wire_number(label, LABEL_UNIT), "bytes");
    assert_int_equal(wire_number(label, LABEL_NUMBER), 5000);
    for (unsigned i = 1; i <= 2; i++) {
        assert_int_equal(wire_count(sample_of(found, code_at(2), i), SAMPLE_LABEL), 1);
        label = wire_part(sample_of(found, code_at(2), i), SAMPLE_LABEL, 0);
        assert_words(found, wire_number(label, LABEL_KEY), "lifetime_from");
        assert_words(found, wire_number(label, LABEL_UNIT), "milliseconds");
        assert_int_equal(wire_number(label, LABEL_NUMBER), i == 1 ? 0 : 512); /* of 512 to 1024 ms */
    }
    rest = found;
    for (struct wire_field field; wire_next(&rest, &field);)
        if (field.number == COMMENT && ++comments == 4)
            assert_words(found, field.value,
                         "peak of what is in use: 2000 ms after the start, 20300 bytes, 20300 by samples");
    assert_int_equal(comments, 5);
}

/* A block of less than half is rounded down; a sample of nothing is not written. */
static void test_rounding(void)
{
    struct record record = { .address = 0x1000, .size = 3, .weight = WEIGHT_ONE / 2 - 1 };
    struct wire found;

    begin(true);
    record.born_ms = now_ms();
    record.site = table_site(&(uintptr_t){ code_at(1) }, 1, NULL);
    assert_true(table_insert(&record));
    assert_int_equal(wire_count(profile_written(NULL), SAMPLE), 0);
    record.address = 0x2000;
    record.weight = 2;
    assert_true(table_insert(&record));
    found = profile_written(NULL);
    assert_values(sample_of(found, code_at(1), 0), (uint64_t[VALUES]){ 1, 2, 1, 2, [PEAK] = 1, 2 });
    end(0x1000);
    fake_advance(5 * MILLISECOND);
    end(0x2000);
    found = profile_written(NULL);
    assert_int_equal(wire_count(found, SAMPLE), 1); /* neither block's end is half a block */
    assert_values(sample_of(found, code_at(1), 0), (uint64_t[VALUES]){ 1, 2, [PEAK] = 1, 2 });
}

/* ---- Locations and mappings ---- */

static struct wire with_id(struct wire found, unsigned kind, uint64_t id)
{
    struct wire_field field;

    for (; wire_next(&found, &field);)
        if (field.number == kind && wire_number(field.bytes, ID) == id)
            return field.bytes;
    fail_msg("no field %u has the id %#llx", kind, (unsigned long long)id);
    return found;
}

struct search {
    uintptr_t address;
    struct os_mapping mapping;
    char path[4096];
};

static bool look(const struct os_mapping *mapping, void *argument)
{
    struct search *search = argument;

    if (search->address < mapping->start || search->address >= mapping->end)
        return true;
    search->mapping = *mapping;
    (void)snprintf(search->path, sizeof search->path, "%s", mapping->path);
    return false;
}

/* The id of the mapping that holds the address, whose fields are checked. */
static uint64_t mapping_of(struct wire found, uintptr_t address)
{
    static struct search search;
    static char buffer[OS_MAPS_LINE];
    struct wire_field field;

    search = (struct search){ .address = address };
    assert_true(os_maps_each(look, &search, buffer, sizeof buffer));
    for (struct wire rest = found; wire_next(&rest, &field);)
        if (field.number == MAPPING && address >= wire_number(field.bytes, MAPPING_START) &&
            address < wire_number(field.bytes, MAPPING_LIMIT)) {
            assert_true(search.mapping.executable);
            assert_int_equal(wire_number(field.bytes, MAPPING_START), search.mapping.start);
            assert_int_equal(wire_number(field.bytes, MAPPING_LIMIT), search.mapping.end);
            assert_int_equal(wire_number(field.bytes, MAPPING_OFFSET), search.mapping.offset);
            assert_words(found, wire_number(field.bytes, MAPPING_FILE), search.path[0] ? search.path : "[anon]");
            return wire_number(field.bytes, ID);
        }
    return 0;
}

/* Makes `count` pages of code that lie apart, so that each is a mapping. Returns the first. */
static char *code_pages(unsigned count, size_t page)
{
    char *pages = mmap(NULL, 2 * count * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(pages != MAP_FAILED);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(mprotect(pages + 2 * i * page, page, PROT_READ | PROT_EXEC), 0);
    return pages;
}

/* A location is written once, with the mapping that holds the call; a page of data has none. */
static void test_locations(void)
{
    enum { PAGES = 700 }; /* more ranges than two pages of memory hold */
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages;
    uint64_t locations[STACK_MOST];
    struct wire found, location;
    uintptr_t frames[4];
    unsigned seen = 0;

    begin(true);
    pages = code_pages(PAGES, page);
    for (unsigned i = 0; i < PAGES; i++) { /* the first byte of a page, the last, and one behind it */
        frames[0] = (uintptr_t)pages + 2 * i * page + 1;
        frames[1] = (uintptr_t)pages + 2 * i * page + page;
        frames[2] = frames[1] + 1;
        frames[3] = code_at(9);
        insert(table_site(frames, 4, NULL), 0x1000 + i * 16, 10, 1);
    }
    found = profile_written(NULL);
    assert_int_equal(wire_count(found, SAMPLE), PAGES);
    assert_int_equal(wire_count(found, LOCATION), 3 * PAGES + 1);
    for (unsigned i = 0; i < PAGES; i += 13, seen++) {
        struct wire sample = sample_of(found, (uintptr_t)pages + 2 * i * page + 1, 0);
        assert_int_equal(wire_numbers(wire_part(sample, SAMPLE_LOCATIONS, 0), locations, STACK_MOST), 4);
        for (unsigned k = 0; k < 4; k++) {
            location = with_id(found, LOCATION, locations[k]);
            assert_int_equal(wire_number(location, LOCATION_ADDRESS), locations[k]);
            assert_int_equal(wire_number(location, LOCATION_MAPPING), mapping_of(found, locations[k]));
            assert_int_equal(wire_count(location, LOCATION_LINE), 0);
            assert_int_equal(wire_number(location, LOCATION_MAPPING) == 0, k == 2);
        }
        assert_int_equal(locations[0], (uintptr_t)pages + 2 * i * page);
        assert_int_equal(locations[1], (uintptr_t)pages + 2 * i * page + page - 1);
        assert_int_equal(locations[3], code_at(9) - 1);
    }
    assert_true(wire_count(found, MAPPING) > PAGES && seen > 50);
    for (unsigned i = 0; i < wire_count(found, MAPPING); i++)
        assert_int_equal(wire_number(wire_part(found, MAPPING, i), ID),
                         wire_number(wire_part(found, MAPPING, i), MAPPING_START));
}

/* A walk by frame pointers ends before the first address outside code. A walk by tables is believed. */
static void check_wild_frames(bool by_tables)
{
    uintptr_t frames[3], data = (uintptr_t)&file;
    uint64_t locations[STACK_MOST];
    struct wire found, sample;

    begin(by_tables);
    frames[0] = code_at(1);
    frames[1] = data;
    frames[2] = code_at(2);
    insert(table_site(frames, 3, NULL), 0x1000, 10, 1);
    insert(table_site(frames + 1, 2, NULL), 0x2000, 10, 1);
    found = profile_written(NULL);
    sample = sample_of(found, frames[0], 0);
    assert_int_equal(wire_numbers(wire_part(sample, SAMPLE_LOCATIONS, 0), locations, STACK_MOST), by_tables ? 3 : 1);
    assert_int_equal(wire_count(found, SAMPLE), 2);
    assert_int_equal(wire_count(found, LOCATION), by_tables ? 3 : 1);
    if (by_tables)
        assert_int_equal(wire_number(with_id(found, LOCATION, data - 1), LOCATION_MAPPING), 0);
}

static void test_wild_frames_tables(void) { check_wild_frames(true); }
static void test_wild_frames_pointers(void) { check_wild_frames(false); }

/* The build id is the one that the linker was given for this program (CMakeLists.txt). */
static void test_build_id(void)
{
    struct wire found, mapping;

    begin(true);
    insert(table_site(&(uintptr_t){ code_at(1) }, 1, NULL), 0x1000, 10, 1);
    insert(table_site(&(uintptr_t){ (uintptr_t)code_pages(1, (size_t)sysconf(_SC_PAGESIZE)) + 1 }, 1, NULL), 0x2000, 10,
           1);
    found = profile_written(NULL);
    mapping = with_id(found, MAPPING, mapping_of(found, code_at(0)));
    assert_words(found, wire_number(mapping, MAPPING_BUILD_ID), "00112233445566778899aabbccddeeff10203040");
    for (unsigned i = 0; i < wire_count(found, MAPPING); i++) {
        mapping = wire_part(found, MAPPING, i);
        if (strcmp(wire_string(found, wire_number(mapping, MAPPING_FILE)), "[anon]") == 0)
            assert_words(found, wire_number(mapping, MAPPING_BUILD_ID), "");
    }
}

/* ---- Labels ---- */

static void test_labels(void)
{
    struct labels *labels;
    struct wire found, sample, label;
    const struct label_set *first;

    begin(true);
    labels = labels_take();
    assert_int_equal(labels_put(labels, LABEL_IS_TEXT, "tenant", "blue", 0), 0);
    insert(table_site(&(uintptr_t){ code_at(1) }, 1, labels_in_force(labels)), 0x1000, 10, 1);
    first = labels_in_force(labels);
    assert_int_equal(labels_put(labels, LABEL_IS_NUMBER, "rows", "bytes", -3), 0);
    assert_int_equal(labels_put(labels, LABEL_IS_NUMBER, "size", NULL, 77), 0);
    insert(table_site(&(uintptr_t){ code_at(2) }, 1, labels_in_force(labels)), 0x2000, 10, 1);
    insert(table_site(&(uintptr_t){ code_at(3) }, 1, NULL), 0x3000, 10, 1);
    assert_ptr_not_equal(first, labels_in_force(labels));
    found = profile_written(NULL);
    assert_int_equal(wire_count(sample_of(found, code_at(3), 0), SAMPLE_LABEL), 1); /* the size is one, too, the last */
    sample = sample_of(found, code_at(1), 0);
    assert_int_equal(wire_count(sample, SAMPLE_LABEL), 2);
    label = wire_part(sample, SAMPLE_LABEL, 0);
    assert_words(found, wire_number(label, LABEL_KEY), "tenant");
    assert_words(found, wire_number(label, LABEL_TEXT), "blue");
    assert_int_equal(wire_count(label, LABEL_NUMBER) + wire_count(label, LABEL_UNIT), 0);
    sample = sample_of(found, code_at(2), 0);
    assert_int_equal(wire_count(sample, SAMPLE_LABEL), 4);
    label = wire_part(sample, SAMPLE_LABEL, 0);
    assert_words(found, wire_number(label, LABEL_KEY), "rows");
    assert_true((int64_t)wire_number(label, LABEL_NUMBER) == -3);
    assert_words(found, wire_number(label, LABEL_UNIT), "bytes");
    assert_int_equal(wire_count(label, LABEL_TEXT), 0);
    label = wire_part(sample, SAMPLE_LABEL, 1);
    assert_words(found, wire_number(label, LABEL_KEY), "size");
    assert_int_equal(wire_number(label, LABEL_NUMBER), 77);
    assert_words(found, wire_number(label, LABEL_UNIT), "");
    label = wire_part(sample, SAMPLE_LABEL, 2);
    assert_words(found, wire_number(label, LABEL_KEY), "tenant");
    assert_words(found, wire_number(label, LABEL_TEXT), "blue");
}

/* ---- Python ---- */

static struct python_code *keep_function(uint32_t id, const char *name, const char *path, uint32_t first_line)
{
    struct python_code *code;

    lock_acquire(&profile_lock);
    code = table_store(base_align_up(sizeof *code + strlen(name) + strlen(path), 8));
    lock_release(&profile_lock);
    assert_non_null(code);
    code->id = id;
    code->first_line = first_line;
    code->name_bytes = (uint32_t)strlen(name);
    code->file_bytes = (uint32_t)strlen(path);
    memcpy(code->text, name, code->name_bytes);
    memcpy(code->text + code->name_bytes, path, code->file_bytes);
    *(python_codes.last ? &python_codes.last->next : &python_codes.first) = code;
    python_codes.last = code;
    return code;
}

/* Python's functions have names and lines, and lie in a mapping behind all others. */
static void test_python(void)
{
    enum { HAS_FUNCTIONS = 7, HAS_LINES = 9 };
    enum { NAME = 2, SYSTEM_NAME, FILE_NAME, START_LINE };
    uintptr_t frames[3] = { PYTHON_MARK | UINT64_C(2) << PYTHON_LINE_BITS | 44, code_at(1),
                            PYTHON_MARK | UINT64_C(1) << PYTHON_LINE_BITS | 3 };
    uint64_t locations[STACK_MOST];
    struct wire found, mapping, function, line;

    for (unsigned tables = 0; tables < 2; tables++) {
        if (tables == 0) {
            begin(false);
            keep_function(1, "main", "/src/a.py", 2);
            keep_function(2, "h\xc3\xb6her", "/src/b.py", 40);
            insert(table_site(frames, 3, NULL), 0x1000, 10, 1);
        }
        os_unwind_prepare(tables ? UNWIND_TABLES : UNWIND_POINTERS, false);
        found = profile_written(NULL);
        mapping = wire_part(found, MAPPING, wire_count(found, MAPPING) - 1);
        assert_true(wire_number(mapping, ID) == PYTHON_MARK);
        assert_true(wire_number(mapping, MAPPING_START) == PYTHON_MARK);
        assert_true(wire_number(mapping, MAPPING_LIMIT) == UINT64_MAX);
        assert_words(found, wire_number(mapping, MAPPING_FILE), "[python]");
        assert_words(found, wire_number(mapping, MAPPING_BUILD_ID), "");
        for (unsigned field = HAS_FUNCTIONS; field <= HAS_LINES; field++)
            assert_int_equal(wire_number(mapping, field), 1);
        assert_int_equal(wire_count(found, FUNCTION), 2);
        function = with_id(found, FUNCTION, 1);
        assert_words(found, wire_number(function, NAME), "main");
        assert_words(found, wire_number(function, SYSTEM_NAME), "main");
        assert_words(found, wire_number(function, FILE_NAME), "/src/a.py");
        assert_int_equal(wire_number(function, START_LINE), 2);
        function = with_id(found, FUNCTION, 2);
        assert_words(found, wire_number(function, NAME), "h\xc3\xb6her");
        assert_words(found, wire_number(function, FILE_NAME), "/src/b.py");
        assert_int_equal(wire_number(function, START_LINE), 40);
        assert_int_equal(
            wire_numbers(wire_part(wire_part(found, SAMPLE, 0), SAMPLE_LOCATIONS, 0), locations, STACK_MOST), 3);
        assert_true(locations[0] == frames[0] && locations[1] == code_at(0) && locations[2] == frames[2]);
        assert_true(wire_number(with_id(found, LOCATION, frames[0]), LOCATION_MAPPING) == PYTHON_MARK);
        line = wire_part(with_id(found, LOCATION, frames[0]), LOCATION_LINE, 0);
        assert_int_equal(wire_number(line, 1), 2);
        assert_int_equal(wire_number(line, 2), 44);
        line = wire_part(with_id(found, LOCATION, frames[2]), LOCATION_LINE, 0);
        assert_int_equal(wire_number(line, 1), 1);
        assert_int_equal(wire_number(line, 2), 3);
    }
}

/* ---- Much, and too little ---- */

/* Stacks of every length, more than one block of deflate holds. Each comes back whole. */
static void test_many_sites(void)
{
    enum { SITES = 1500 };
    uintptr_t frames[STACK_MOST];
    uint64_t locations[STACK_MOST];
    struct wire found, sample;
    unsigned blocks;

    begin(true);
    for (unsigned i = 0; i < SITES; i++) {
        for (unsigned k = 0; k < STACK_MOST; k++)
            frames[k] = code_at(k ? 1 + (i * 31 + k * 7) % 5000 : 6000 + i);
        insert(table_site(frames, 1 + i % STACK_MOST, NULL), 0x1000 + i * 16, 10 + i, 1);
    }
    found = profile_written(&blocks);
    assert_true(blocks > 3);
    assert_int_equal(wire_count(found, SAMPLE), SITES);
    for (unsigned i = 0; i < SITES; i += 11) {
        sample = sample_of(found, code_at(6000 + i), 0);
        assert_int_equal(wire_numbers(wire_part(sample, SAMPLE_LOCATIONS, 0), locations, STACK_MOST),
                         1 + i % STACK_MOST);
        for (unsigned k = 1; k < 1 + i % STACK_MOST; k++)
            assert_int_equal(locations[k], code_at(1 + (i * 31 + k * 7) % 5000) - 1);
        assert_values(sample, (uint64_t[VALUES]){ 1, 10 + i, 1, 10 + i, [PEAK] = 1, 10 + i });
    }
}

/* The sink's stream is whole whatever its length is, also at the ends of blocks. */
static void test_stream_lengths(void)
{
    enum { BLOCK = 32768, MOST = 3 * BLOCK };
    static const unsigned lengths[] = { 0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, MOST };
    static uint8_t bytes[MOST];

    core_begin();
    file = memfd_create("stream", 0);
    for (unsigned i = 0; i < MOST; i++)
        bytes[i] = (uint8_t)(i * 2654435761u >> 24);
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (unsigned part = 1; part <= MOST; part = part * 7 + 4) {
            struct wire found;
            unsigned blocks;
            struct sink *sink;
            assert_int_equal(ftruncate(file, 0), 0);
            assert_int_equal(lseek(file, 0, SEEK_SET), 0);
            sink = sink_begin(file);
            for (unsigned at = 0; at < lengths[i]; at += part)
                sink_put(sink, bytes + at, base_min(part, lengths[i] - at));
            assert_int_equal(sink_end(sink), 0);
            found = wire_read(file, &blocks);
            assert_int_equal(found.end - found.at, lengths[i]);
            assert_memory_equal(found.at, bytes, lengths[i]);
            assert_int_equal(blocks, lengths[i] / BLOCK + 1);
        }
}

/* Without memory nothing stays mapped, and the written file says so. */
static void test_no_memory(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), mapped;
    unsigned failed = 0;

    begin(true);
    (void)code_pages(900, page); /* so that the list of mappings grows */
    for (unsigned i = 0; i < 300; i++)
        insert(table_site(&(uintptr_t){ code_at(i) }, 1, NULL), 0x1000 + i * 16, 10, 1);
    (void)profile_written(NULL);
    mapped = fake_bytes_mapped();
    for (unsigned nth = 1; nth < 100; nth++) {
        fake_fail_nth(FAKE_MAP, nth);
        if (dump_write_fd(file) == 0)
            break;
        failed++;
        assert_int_equal(fake_bytes_mapped(), mapped);
    }
    assert_int_equal(failed, 5); /* the views, the addresses seen, and the list of mappings three times */
    assert_int_equal(fake_bytes_mapped(), mapped);
}

/* The first error is returned, and nothing is written after it. */
static void test_write_errors(void)
{
    int full = open("/dev/full", O_WRONLY), ends[2];
    uint8_t bytes[40000] = { 0 };
    struct sink *sink;

    begin(true);
    insert(table_site(&(uintptr_t){ code_at(1) }, 1, NULL), 0x1000, 10, 1);
    assert_true(full >= 0);
    assert_int_equal(dump_write_fd(full), ENOSPC);
    assert_int_equal(dump_write_fd(-1), EBADF);
    sink = sink_begin(full);
    sink_put(sink, bytes, sizeof bytes);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[1], full), full);
    assert_int_equal(sink_end(sink), ENOSPC);
    close(ends[1]);
    close(full);
    assert_int_equal(read(ends[0], bytes, sizeof bytes), 0);
    (void)profile_written(NULL); /* the next stream begins without the error */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        core_unit_test(test_head_tables),
        core_unit_test(test_head_pointers),
        core_unit_test(test_values),
        core_unit_test(test_rounding),
        core_unit_test(test_locations),
        core_unit_test(test_wild_frames_tables),
        core_unit_test(test_wild_frames_pointers),
        core_unit_test(test_build_id),
        core_unit_test(test_labels),
        core_unit_test(test_python),
        core_unit_test(test_many_sites),
        core_unit_test(test_stream_lengths),
        core_unit_test(test_no_memory),
        core_unit_test(test_write_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
