#include "observe/descriptor.h"

#include "base/version.h"
#include "front/thread_cache.h"
#include "options/options.h"
#include "os/outside.h"
#include "pool/huge.h"
#include "pool/registry.h"
#include "pool/scope.h"
#include "profile/guard.h"
#include "profile/profile.h"
#include "profile/python.h"
#include "superslab/shared_pool.h"

#define COUNT_ROW(...) 0,
#define FIELD_OF(struct_, field) (((struct struct_ *)0)->field)
#define FIELD_TYPE(struct_, field) __typeof__(FIELD_OF(struct_, field))

#define TYPE_ROW(struct_) { .name = #struct_, .kind = DESCRIPTOR_TYPE, .size = sizeof(struct struct_), .count = 1 },
#define FIELD_ROW(struct_, field)                                                                                      \
    { .name = #struct_ "." #field, .kind = DESCRIPTOR_FIELD, .value.number = offsetof(struct struct_, field),          \
      .size = sizeof(FIELD_TYPE(struct_, field)), .count = 1 },
#define ARRAY_ROW(struct_, field)                                                                                      \
    { .name = #struct_ "." #field, .kind = DESCRIPTOR_FIELD, .value.number = offsetof(struct struct_, field),          \
      .size = sizeof(FIELD_OF(struct_, field)[0]),                                                                     \
      .count = sizeof(FIELD_OF(struct_, field)) / sizeof(FIELD_OF(struct_, field)[0]) },
#define CONSTANT_ROW(name_) { .name = #name_, .kind = DESCRIPTOR_CONSTANT, .value.number = (name_), .count = 1 },
#define ROOT_ROW(name_, object)                                                                                        \
    { .name = #name_, .kind = DESCRIPTOR_ROOT, .value.address = (object), .size = sizeof(void *), .count = 1 },
#define OPTION_FIELD_ROW(field, name, kind, default_, lowest, highest, unit, doc) FIELD_ROW(options, field)

enum {
    ROWS = sizeof((const char[]){
        DESCRIPTOR_TABLE(COUNT_ROW, COUNT_ROW, COUNT_ROW, COUNT_ROW, COUNT_ROW) OPTION_TABLE(COUNT_ROW) })
};

struct descriptor {
    struct descriptor_head head;
    struct descriptor_row rows[ROWS];
};

_Static_assert(sizeof(struct site) == offsetof(struct site, frames), "readers look for the frames behind the struct");

extern const struct descriptor hak_descriptor;

/* The section's name survives stripping in a static program, where the symbol's does not. `retain` keeps the table when
 * the linker drops what nothing refers to. */
__attribute__((visibility("default"), used, retain, section("hakmem_descriptor")))
const struct descriptor hak_descriptor = {
    .head = { .magic = DESCRIPTOR_MAGIC, .format = DESCRIPTOR_FORMAT, .size = sizeof(struct descriptor),
              .version = BASE_VERSION_STRING, .rows = ROWS, .row_size = sizeof(struct descriptor_row),
              .rows_offset = offsetof(struct descriptor, rows), .pointer_size = sizeof(void *) },
    .rows = { DESCRIPTOR_TABLE(TYPE_ROW, FIELD_ROW, ARRAY_ROW, CONSTANT_ROW, ROOT_ROW) OPTION_TABLE(OPTION_FIELD_ROW) },
};
