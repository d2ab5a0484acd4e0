#include "profile/pprof.h"

#include <errno.h>
#include <string.h>

#include "base/format.h"
#include "base/version.h"
#include "os/file.h"
#include "os/maps.h"
#include "os/os.h"
#include "os/process.h"
#include "os/unwind.h"
#include "profile/profile.h"
#include "profile/python.h"
#include "profile/sink.h"

/* ---- Numbers of the format's fields ---- */

enum profile_field {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE,
    PROFILE_MAPPING,
    PROFILE_LOCATION,
    PROFILE_FUNCTION,
    PROFILE_STRING,
    PROFILE_DROP_FRAMES,
    PROFILE_KEEP_FRAMES,
    PROFILE_TIME,
    PROFILE_DURATION,
    PROFILE_PERIOD_TYPE,
    PROFILE_PERIOD,
    PROFILE_COMMENT,
    PROFILE_DEFAULT_TYPE
};
enum value_type_field { VALUE_TYPE = 1, VALUE_UNIT };
enum sample_field { SAMPLE_LOCATION = 1, SAMPLE_VALUE, SAMPLE_LABEL };
enum label_field { LABEL_KEY = 1, LABEL_TEXT, LABEL_NUMBER, LABEL_UNIT };
enum mapping_field { MAPPING_ID = 1, MAPPING_START, MAPPING_LIMIT, MAPPING_OFFSET, MAPPING_FILE, MAPPING_BUILD_ID,
                     MAPPING_HAS_FUNCTIONS, MAPPING_HAS_FILES, MAPPING_HAS_LINES };
enum location_field { LOCATION_ID = 1, LOCATION_MAPPING, LOCATION_ADDRESS, LOCATION_LINE };
enum line_field { LINE_FUNCTION = 1, LINE_LINE };
enum function_field { FUNCTION_ID = 1, FUNCTION_NAME, FUNCTION_SYSTEM_NAME, FUNCTION_FILE, FUNCTION_START_LINE };

/* The first strings of every profile's string table. */
#define STRING_TABLE(STRING)                                                                                           \
    STRING(NONE, "") STRING(ALLOC_OBJECTS, "alloc_objects") STRING(ALLOC_SPACE, "alloc_space")                         \
    STRING(INUSE_OBJECTS, "inuse_objects") STRING(INUSE_SPACE, "inuse_space") STRING(FREED_OBJECTS, "freed_objects")   \
    STRING(LIFETIME, "lifetime") STRING(COUNT, "count") STRING(BYTES, "bytes") STRING(MILLISECONDS, "milliseconds")    \
    STRING(SPACE, "space") STRING(LIFETIME_FROM, "lifetime_from") STRING(PEAK_OBJECTS, "peak_objects")                 \
    STRING(PEAK_SPACE, "peak_space") STRING(OWN_FREED, "own_freed_objects") STRING(CALLS_FROM, "allocations_from")     \
    STRING(DROP, ("hak_.*|"                                                                                            \
                  "malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|memalign|valloc|pvalloc|"           \
                  "operator new.*|_Zn[wa].*"))
enum string_index {
#define STRING_INDEX(name, text) STRING_##name,
    STRING_TABLE(STRING_INDEX)
#undef STRING_INDEX
    STRING_FIRST_FREE
};
static const char *const strings[] = {
#define STRING_TEXT(name, text) text,
    STRING_TABLE(STRING_TEXT)
#undef STRING_TEXT
};

static const uint8_t sample_types[][2] = {
    { STRING_ALLOC_OBJECTS, STRING_COUNT }, { STRING_ALLOC_SPACE, STRING_BYTES },
    { STRING_INUSE_OBJECTS, STRING_COUNT }, { STRING_INUSE_SPACE, STRING_BYTES },
    { STRING_FREED_OBJECTS, STRING_COUNT }, { STRING_LIFETIME, STRING_MILLISECONDS },
    { STRING_PEAK_OBJECTS, STRING_COUNT },  { STRING_PEAK_SPACE, STRING_BYTES },
    { STRING_OWN_FREED, STRING_COUNT },
};
enum { VALUES = sizeof sample_types / sizeof sample_types[0] };

/* ---- Messages ---- */

/* A message is built before it is written, as its length comes first. Its bytes are many: nothing clears them. */
struct message {
    size_t used;
    uint8_t bytes[(STACK_MOST + VALUES + 16 + 3 * LABEL_ENTRIES) * 11];
};

enum { NUMBER_MOST = 10 }; /* bytes of a number */

/* Returns the end. */
static uint8_t *varint_at(uint8_t *at, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        *at++ = (uint8_t)(value | 128);
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *field_at(uint8_t *at, unsigned field, uint64_t value)
{
    return varint_at(varint_at(at, (uint64_t)field << 3), value);
}

static void put_number(struct message *message, uint64_t value)
{
    message->used = (size_t)(varint_at(message->bytes + message->used, value) - message->bytes);
}

static void put_field(struct message *message, unsigned field, uint64_t value)
{
    put_number(message, (uint64_t)field << 3);
    put_number(message, value);
}

static void put_bytes(struct message *message, unsigned field, const void *bytes, size_t size)
{
    put_number(message, ((uint64_t)field << 3) | 2);
    put_number(message, size);
    memcpy(message->bytes + message->used, bytes, size);
    message->used += size;
}

static void write_bytes(struct sink *sink, unsigned field, const void *bytes, size_t size)
{
    uint8_t head[2 * NUMBER_MOST], *end = varint_at(varint_at(head, ((uint64_t)field << 3) | 2), size);

    sink_put(sink, head, (size_t)(end - head));
    sink_put(sink, bytes, size);
}

static void write_message(struct sink *sink, unsigned field, const struct message *message)
{
    write_bytes(sink, field, message->bytes, message->used);
}

static void write_field(struct sink *sink, unsigned field, uint64_t value)
{
    uint8_t bytes[2 * NUMBER_MOST];

    sink_put(sink, bytes, (size_t)(field_at(bytes, field, value) - bytes));
}

static void write_value_type(struct sink *sink, unsigned field, unsigned type, unsigned unit)
{
    uint8_t bytes[4 * NUMBER_MOST], *end = field_at(field_at(bytes, VALUE_TYPE, type), VALUE_UNIT, unit);

    write_bytes(sink, field, bytes, (size_t)(end - bytes));
}

/* ---- What is written ---- */

struct range {
    uintptr_t start, end;
};

struct writer {
    struct sink *sink;
    int error;
    uint64_t strings; /* in the table so far */
    struct os_modules modules;
    bool program_is_due;  /* only the program's mapping is to be written, because pprof names a profile by the first */
    struct range *ranges; /* of the mappings, each with its start as id; mapped apart */
    size_t range_count, range_capacity;
    uintptr_t *seen; /* addresses that have a location: a hash set */
    size_t seen_capacity;
};

static uint64_t write_string_of(struct writer *writer, const char *text, size_t size)
{
    write_bytes(writer->sink, PROFILE_STRING, text, size);
    return writer->strings++;
}

static uint64_t write_string(struct writer *writer, const char *text)
{
    return write_string_of(writer, text, strlen(text));
}

static void write_comment(struct writer *writer, const char *text)
{
    write_field(writer->sink, PROFILE_COMMENT, write_string(writer, text));
}

/* Writes the module's build id as a string and returns its number. module: may be NULL. */
static uint64_t write_build_id(struct writer *writer, const struct os_module *module)
{
    static const char digits[] = "0123456789abcdef";
    char text[2 * OS_BUILD_ID_MOST + 1];
    size_t length;

    if (!module || module->build_id_size == 0)
        return STRING_NONE;
    length = (size_t)2 * module->build_id_size;
    for (size_t i = 0; i < length; i++)
        text[i] = digits[module->build_id[i / 2] >> (i % 2 ? 0 : 4) & 15];
    text[length] = '\0';
    return write_string(writer, text);
}

static size_t ranges_bytes(size_t capacity) { return base_align_up(capacity * sizeof(struct range), os_page_size()); }

static bool ranges_grow(struct writer *writer)
{
    size_t capacity = ranges_bytes(2 * writer->range_capacity + 1) / sizeof(struct range);
    struct range *ranges = os_map(ranges_bytes(capacity), os_page_size());

    if (!ranges)
        return false;
    if (writer->ranges) {
        memcpy(ranges, writer->ranges, writer->range_count * sizeof *ranges);
        os_unmap(writer->ranges, ranges_bytes(writer->range_capacity));
    }
    writer->ranges = ranges;
    writer->range_capacity = capacity;
    return true;
}

static bool write_mapping(const struct os_mapping *mapping, void *argument)
{
    struct writer *writer = argument;
    const struct os_module *module = os_modules_next(&writer->modules, mapping);
    bool is_program = os_unwind_program() - mapping->start < mapping->end - mapping->start;
    static struct message message;

    if (!mapping->executable || (writer->program_is_due && !is_program))
        return true;
    if (!writer->program_is_due) {
        if (writer->range_count == writer->range_capacity && !ranges_grow(writer)) {
            writer->error = ENOMEM;
            return false;
        }
        writer->ranges[writer->range_count++] = (struct range){ mapping->start, mapping->end };
        if (is_program)
            return true;
    }
    message.used = 0;
    put_field(&message, MAPPING_ID, mapping->start);
    put_field(&message, MAPPING_START, mapping->start);
    put_field(&message, MAPPING_LIMIT, mapping->end);
    put_field(&message, MAPPING_OFFSET, mapping->offset);
    put_field(&message, MAPPING_FILE, write_string(writer, mapping->path[0] ? mapping->path : "[anon]"));
    put_field(&message, MAPPING_BUILD_ID, write_build_id(writer, module));
    write_message(writer->sink, PROFILE_MAPPING, &message);
    return !is_program;
}

/* Python functions, which have names, lie in a mapping of their own behind all others (python.h). */
static void write_python(struct writer *writer, const struct python_code *code)
{
    static struct message message;

    message.used = 0;
    put_field(&message, MAPPING_ID, PYTHON_MARK);
    put_field(&message, MAPPING_START, PYTHON_MARK);
    put_field(&message, MAPPING_LIMIT, UINT64_MAX);
    put_field(&message, MAPPING_OFFSET, 0);
    put_field(&message, MAPPING_FILE, write_string(writer, "[python]"));
    put_field(&message, MAPPING_BUILD_ID, STRING_NONE);
    for (unsigned field = MAPPING_HAS_FUNCTIONS; field <= MAPPING_HAS_LINES; field++)
        put_field(&message, field, 1);
    write_message(writer->sink, PROFILE_MAPPING, &message);
    for (; code; code = code->next) {
        uint64_t name = write_string_of(writer, code->text, code->name_bytes);
        message.used = 0;
        put_field(&message, FUNCTION_ID, code->id);
        put_field(&message, FUNCTION_NAME, name);
        put_field(&message, FUNCTION_SYSTEM_NAME, name);
        put_field(&message, FUNCTION_FILE, write_string_of(writer, code->text + code->name_bytes, code->file_bytes));
        put_field(&message, FUNCTION_START_LINE, code->first_line);
        write_message(writer->sink, PROFILE_FUNCTION, &message);
    }
}

/* Writes the strings of all label sets: for each item the key, then the text or unit. */
static void write_label_strings(struct writer *writer)
{
    struct label_set *set = __atomic_load_n(&label_sets.first, __ATOMIC_ACQUIRE); /* Acquire: its link (labels.c) */

    for (; set; set = __atomic_load_n(&set->next, __ATOMIC_ACQUIRE)) {
        set->strings = writer->strings;
        for (unsigned i = 0; i < set->count; i++) {
            const struct label_item *item = &set->items[i];
            const char *text = label_texts(set) + item->text;
            write_string_of(writer, text, item->key_bytes);
            write_string_of(writer, text + item->key_bytes, item->value_bytes);
        }
    }
}

/* The id of the mapping that the address lies in; 0: none. */
static uint64_t mapping_of(const struct writer *writer, uintptr_t address)
{
    size_t low = 0, high = writer->range_count;

    while (low < high) {
        size_t middle = (low + high) / 2;
        if (address < writer->ranges[middle].start)
            high = middle;
        else if (address >= writer->ranges[middle].end)
            low = middle + 1;
        else
            return writer->ranges[middle].start;
    }
    return 0;
}

/* A location's id is its address. For a call this is its last byte: the return address may belong to another line. */
static uint64_t write_location(struct writer *writer, uintptr_t return_address)
{
    bool is_python = python_is_frame(return_address);
    uintptr_t address = is_python ? return_address : return_address - 1;
    size_t at = (size_t)((address * UINT64_C(0x9e3779b97f4a7c15)) >> 20) & (writer->seen_capacity - 1);
    static struct message message, line;

    for (; writer->seen[at]; at = (at + 1) & (writer->seen_capacity - 1))
        if (writer->seen[at] == address)
            return address;
    writer->seen[at] = address;
    message.used = 0;
    put_field(&message, LOCATION_ID, address);
    put_field(&message, LOCATION_MAPPING, is_python ? PYTHON_MARK : mapping_of(writer, address));
    put_field(&message, LOCATION_ADDRESS, address);
    if (is_python) {
        line.used = 0;
        put_field(&line, LINE_FUNCTION, python_frame_id(address));
        put_field(&line, LINE_LINE, python_frame_line(address));
        put_bytes(&message, LOCATION_LINE, line.bytes, line.used);
    }
    write_message(writer->sink, PROFILE_LOCATION, &message);
    return address;
}

/* The frames up to the first outside code: walks by frame pointers go astray in code that keeps none. */
static unsigned frames_to_write(const struct writer *writer, const struct site *site)
{
    unsigned count = site->frame_count, i;

    for (i = 0; !os_unwind_by_tables() && i < count; i++)
        if (!python_is_frame(site->frames[i]) && mapping_of(writer, site->frames[i] - 1) == 0)
            return i;
    return count;
}

static void put_labels(struct message *message, const struct label_set *set)
{
    static struct message label;

    for (unsigned i = 0; set && i < set->count; i++) {
        const struct label_item *item = &set->items[i];
        uint64_t key = set->strings + (uint64_t)2 * i, text = item->value_bytes ? key + 1 : STRING_NONE;
        label.used = 0;
        put_field(&label, LABEL_KEY, key);
        if (item->kind == LABEL_IS_NUMBER)
            put_field(&label, LABEL_NUMBER, (uint64_t)item->number);
        put_field(&label, item->kind == LABEL_IS_NUMBER ? LABEL_UNIT : LABEL_TEXT, text);
        put_bytes(message, SAMPLE_LABEL, label.bytes, label.used);
    }
}

/* A label of the profile's own, a number; key STRING_NONE: none. */
struct own_label {
    unsigned key, unit; /* of the first strings */
    uint64_t number;
};

static void write_sample(struct writer *writer, const struct site *site, const uint64_t values[VALUES],
                         struct own_label label)
{
    static struct message message, packed;
    unsigned frames = frames_to_write(writer, site);

    message.used = packed.used = 0;
    for (unsigned i = 0; i < frames; i++)
        put_number(&packed, write_location(writer, site->frames[i]));
    put_bytes(&message, SAMPLE_LOCATION, packed.bytes, packed.used);
    packed.used = 0;
    for (unsigned i = 0; i < VALUES; i++)
        put_number(&packed, values[i]);
    put_bytes(&message, SAMPLE_VALUE, packed.bytes, packed.used);
    put_labels(&message, site->labels);
    if (label.key != STRING_NONE) {
        packed.used = 0;
        put_field(&packed, LABEL_KEY, label.key);
        put_field(&packed, LABEL_NUMBER, label.number);
        put_field(&packed, LABEL_UNIT, label.unit);
        put_bytes(&message, SAMPLE_LABEL, packed.bytes, packed.used);
    }
    write_message(writer->sink, PROFILE_SAMPLE, &message);
}

/* The least number in a bucket: bucket 0 begins at 0, and each other one at a power of two. */
static uint64_t bucket_begin(unsigned bucket) { return bucket ? UINT64_C(1) << (bucket - 1) : 0; }

/* The label `bytes` is the one that pprof, Go and jemalloc's jeprof give a sample whose blocks have one size. */
static void write_size(struct writer *writer, const struct size_view *view)
{
    struct own_label label = { view->size->size == SIZE_ANY ? STRING_NONE : STRING_BYTES, STRING_BYTES,
                               view->size->size };
    uint64_t values[VALUES] = { weight_round(view->allocated.objects), weight_round(view->allocated.bytes),
                                weight_round(view->in_use.objects), weight_round(view->in_use.bytes),
                                [6] = weight_round(view->peak.objects), [7] = weight_round(view->peak.bytes) };

    if (values[0] || values[2] || values[6])
        write_sample(writer, view->size->site, values, label);
}

/* The blocks of a site that were freed. */
static void write_ends(struct writer *writer, const struct site_view *view)
{
    for (unsigned bucket = 0; bucket < LIFETIME_BUCKETS; bucket++) {
        const struct site_sums *ended = &view->lifetimes[bucket];
        uint64_t values[VALUES] = { [4] = weight_round(ended->objects), [5] = weight_round(ended->bytes) };
        struct own_label label = { STRING_LIFETIME_FROM, STRING_MILLISECONDS, bucket_begin(bucket) };
        if (values[4])
            write_sample(writer, view->site, values, label);
    }
    for (unsigned bucket = 0; bucket < OWN_BUCKETS; bucket++) {
        uint64_t values[VALUES] = { [8] = weight_round(view->own_freed[bucket]) };
        struct own_label label = { STRING_CALLS_FROM, STRING_COUNT, bucket_begin(bucket) };
        if (values[8])
            write_sample(writer, view->site, values, label);
    }
}

/* Milliseconds from the start to the peak. */
static uint64_t peak_ms(uint64_t at, uint64_t started_ns)
{
    uint64_t start = started_ns / 1000000;

    return at > start ? at - start : 0;
}

/* The variance of an estimate of bytes: n blocks of s bytes, of which each sample stands for w, have n s^2 (w - 1). */
static double variance_of(const struct site_sums *sums)
{
    double objects = (double)sums->objects / (double)WEIGHT_ONE, bytes = (double)sums->bytes / (double)WEIGHT_ONE;
    double spare;

    if (objects <= 0)
        return 0;
    spare = (double)draw_weight(profile.mean, (size_t)(bytes / objects)) / (double)WEIGHT_ONE - 1;
    return bytes * bytes / objects * spare;
}

/* The square root, to a unit. */
static double square_root(double of)
{
    double root = of > 1 ? of : 1;

    for (unsigned step = 0; step < 80 && root * root > of; step++)
        root = (root + of / root) / 2;
    return of > 0 ? root : 0;
}

/* The interval of 95 %, as in python/hakmem/heap/interval.py: two samples more than there are count, because with few
 * samples the variance is itself uncertain. */
struct estimate pprof_estimate(const struct profile_view *view, bool allocated)
{
    struct site_sums all = { 0, 0 };
    double variance = 0, bytes, objects, size, weight;

    for (size_t i = 0; i < view->size_count; i++) {
        const struct site_sums *sums = allocated ? &view->sizes[i].allocated : &view->sizes[i].in_use;
        all.objects += sums->objects;
        all.bytes += sums->bytes;
        variance += variance_of(sums);
    }
    if (all.objects == 0) /* with more in use, one of it were a sample: exp(-3) = 0.05 */
        return (struct estimate){ 0, profile.mean == 1 ? 0 : 3 * profile.mean };
    bytes = (double)all.bytes / (double)WEIGHT_ONE;
    objects = (double)all.objects / (double)WEIGHT_ONE;
    size = bytes / objects;
    weight = size >= 1 ? (double)draw_weight(profile.mean, (size_t)size) / (double)WEIGHT_ONE : 1;
    return (struct estimate){ weight_round(all.bytes),
                              (uint64_t)(1.96 * square_root(variance + 2 * size * size * weight * (weight - 1))) };
}

/* Makes the parts' sum at the peak what was in use then. The difference goes to the parts by their variances, so that
 * what is known for certain stays (a regression estimate). */
static void settle_peak(struct profile_view *view)
{
    double sampled = (double)view->peak.sampled / (double)WEIGHT_ONE, bytes = (double)view->peak.bytes,
           least = (double)view->peak.least, missing, all = 0;

    missing = sampled > bytes ? bytes - sampled : sampled < least ? least - sampled : 0;
    for (size_t i = 0; missing != 0 && i < view->size_count; i++)
        all += variance_of(&view->sizes[i].peak);
    for (size_t i = 0; all > 0 && i < view->size_count; i++) {
        struct site_sums *peak = &view->sizes[i].peak;
        double before = (double)peak->bytes, after;
        after = before + missing / all * variance_of(peak) * (double)WEIGHT_ONE;
        if (before > 0) {
            peak->bytes = after > 0 ? (uint64_t)after : 0;
            peak->objects = after > 0 ? (uint64_t)((double)peak->objects * (after / before)) : 0;
        }
    }
}

static void write_totals(struct writer *writer, const struct profile_view *view)
{
    struct estimate in_use = pprof_estimate(view, false), allocated = pprof_estimate(view, true);
    char text[160];

    base_format(text, sizeof text, "in use: %lu bytes +-%lu; allocated: %lu bytes +-%lu", in_use.bytes, in_use.error,
                allocated.bytes, allocated.error);
    write_comment(writer, text);
}

static void write_head(struct writer *writer, const struct profile_view *view, uint64_t started_ns, uint32_t process)
{
    struct sink *sink = writer->sink;
    char text[160];

    for (unsigned i = 0; i < STRING_FIRST_FREE; i++)
        write_string(writer, strings[i]);
    for (unsigned i = 0; i < VALUES; i++)
        write_value_type(sink, PROFILE_SAMPLE_TYPE, sample_types[i][0], sample_types[i][1]);
    write_value_type(sink, PROFILE_PERIOD_TYPE, STRING_SPACE, STRING_BYTES);
    write_field(sink, PROFILE_PERIOD, profile.mean);
    write_field(sink, PROFILE_DEFAULT_TYPE, STRING_INUSE_SPACE);
    write_field(sink, PROFILE_DROP_FRAMES, STRING_DROP);
    write_field(sink, PROFILE_TIME, os_time_of_day());
    write_field(sink, PROFILE_DURATION, os_now() - started_ns);
    base_format(text, sizeof text, "hakmem %s", BASE_VERSION_STRING);
    write_comment(writer, text);
    base_format(text, sizeof text, "samples are %lu bytes apart in the mean (HAKMEM_HEAP_PROFILE_RATE); stacks by %s",
                profile.mean, os_unwind_by_tables() ? "unwind tables" : "frame pointers");
    write_comment(writer, text);
    base_format(text, sizeof text, "process %u", process); /* which /tmp/perf-PID.map is named by */
    write_comment(writer, text);
    if (view->peak.bytes) {
        base_format(text, sizeof text, "peak of what is in use: %lu ms after the start, %lu bytes, %lu by samples",
                    peak_ms(view->peak.at_ms, started_ns), view->peak.bytes, weight_round(view->peak.sampled));
        write_comment(writer, text);
    }
    if (view->size_count)
        write_totals(writer, view);
}

/* ---- Views ---- */

static size_t view_bytes(const struct profile_view *view)
{
    return base_align_up(view->count * sizeof *view->sites + view->size_count * sizeof *view->sizes, os_page_size());
}

/* Under profile_lock. */
static void view_copy(struct profile_view *view)
{
    const struct site *site = profile_sites.first;
    const struct site_size *size = profile_sizes.first;

    view->peak = table_peak;
    for (size_t i = 0; i < view->count; i++, site = site->next) {
        view->sites[i].site = site;
        view->sites[i].in_use = site->in_use;
        memcpy(view->sites[i].lifetimes, site->lifetimes, sizeof site->lifetimes);
        memcpy(view->sites[i].own_freed, site->own_freed, sizeof site->own_freed);
    }
    for (size_t i = 0; i < view->size_count; i++, size = size->next)
        view->sizes[i] = (struct size_view){ .size = size, .allocated = size->allocated, .in_use = size->in_use,
                                             .peak = table_at_peak(size) };
}

struct profile_view pprof_view(void)
{
    struct profile_view view = { 0 };

    lock_acquire(&profile_lock);
    view.count = profile_sites.count;
    view.size_count = profile_sizes.count;
    lock_release(&profile_lock);
    view.sites = view.count ? os_map(view_bytes(&view), os_page_size()) : NULL;
    if (!view.sites)
        return view;
    view.sizes = (struct size_view *)(view.sites + view.count);
    lock_acquire(&profile_lock);
    view_copy(&view);
    lock_release(&profile_lock);
    settle_peak(&view);
    return view;
}

void pprof_view_end(const struct profile_view *view)
{
    if (view->sites)
        os_unmap(view->sites, view_bytes(view));
}

/* ---- The whole ---- */

static size_t seen_bytes(size_t capacity) { return base_align_up(capacity * sizeof(uintptr_t), os_page_size()); }

static bool writer_prepare(struct writer *writer, const struct profile_view *view)
{
    size_t frames = 1;

    for (size_t i = 0; i < view->count; i++)
        frames += view->sites[i].site->frame_count;
    writer->seen_capacity = (size_t)2 << (base_high_bit(frames) + 1);
    writer->seen = os_map(seen_bytes(writer->seen_capacity), os_page_size());
    return writer->seen != NULL;
}

static void write_mappings(struct writer *writer, bool program_is_due)
{
    static _Alignas(8) char headers[OS_MODULES_BUFFER];
    static char buffer[OS_MAPS_LINE];

    writer->program_is_due = program_is_due;
    os_modules_begin(&writer->modules, headers);
    if (!os_maps_each(write_mapping, writer, buffer, sizeof buffer))
        writer->error = EIO;
    os_modules_end(&writer->modules);
}

static void write_sites(struct writer *writer, const struct profile_view *view)
{
    if (os_unwind_program())
        write_mappings(writer, true);
    write_mappings(writer, false);
    /* A function kept after this is in no site of the view. */
    if (__atomic_load_n(&python_codes.first, __ATOMIC_ACQUIRE)) /* Acquire: its link (python.c) */
        write_python(writer, python_codes.first);
    write_label_strings(writer);
    for (size_t i = 0; i < view->size_count; i++)
        write_size(writer, &view->sizes[i]);
    for (size_t i = 0; i < view->count; i++)
        write_ends(writer, &view->sites[i]);
    if (view->peak.sampled == 0 && view->peak.least) {
        static const struct site nowhere;
        uint64_t values[VALUES] = { [7] = view->peak.least };
        write_sample(writer, &nowhere, values, (struct own_label){ STRING_NONE, STRING_NONE, 0 });
    }
}

int pprof_write(int file, uint64_t started_ns, uint32_t process)
{
    struct writer writer = { .error = ENOMEM };
    struct profile_view view = pprof_view();

    /* Without a site there are no locations and no mappings: a short program would spend most of its time on them. */
    if (view.count == 0 || (view.sites && writer_prepare(&writer, &view))) {
        writer.error = 0;
        writer.sink = sink_begin(file);
        write_head(&writer, &view, started_ns, process);
        if (view.sites)
            write_sites(&writer, &view);
        if (writer.error == 0)
            writer.error = sink_end(writer.sink);
        if (writer.ranges)
            os_unmap(writer.ranges, ranges_bytes(writer.range_capacity));
        if (writer.seen)
            os_unmap(writer.seen, seen_bytes(writer.seen_capacity));
    }
    pprof_view_end(&view);
    return writer.error;
}
