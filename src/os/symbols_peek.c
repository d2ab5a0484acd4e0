/* Symbols of loaded objects without the dynamic linker's lock, read by os_peek: an object may go meanwhile. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <string.h>

#include "os/maps.h"
#include "os/peek.h"
#include "os/symbols.h"

/* Weak, as in symbols.c. */
extern struct r_debug _r_debug __attribute__((weak));
extern struct r_debug *_dl_debug_addr __attribute__((weak));

/* Bounds of what may have been overwritten as it was read. */
enum { OBJECTS_MOST = 4096, DYNAMIC_MOST = 256, CHAIN_MOST = 65536, SYMBOL_NAME_MOST = 64 };

struct peeked {
    uintptr_t base, symbols, strings, hash; /* hash: header, filter, buckets, chains (symbols.c:find_gnu) */
    uint32_t buckets, first, filter_words;
};

static bool peek_32(uintptr_t address, uint32_t *value) { return os_peek_at(address, value, sizeof *value); }

/* As symbols.c:dynamic_pointer. */
static uintptr_t peeked_pointer(uintptr_t base, uintptr_t value) { return value < base ? value + base : value; }

static bool peek_object(struct peeked *object, const struct link_map *map)
{
    uint32_t header[4];
    ElfW(Dyn) entry = { .d_tag = DT_DEBUG };

    *object = (struct peeked){ .base = map->l_addr };
    for (unsigned i = 0; i < DYNAMIC_MOST && entry.d_tag != DT_NULL; i++) {
        if (!os_peek_at((uintptr_t)&map->l_ld[i], &entry, sizeof entry))
            return false;
        if (entry.d_tag == DT_SYMTAB)
            object->symbols = peeked_pointer(object->base, entry.d_un.d_ptr);
        else if (entry.d_tag == DT_STRTAB)
            object->strings = peeked_pointer(object->base, entry.d_un.d_ptr);
        else if (entry.d_tag == DT_GNU_HASH)
            object->hash = peeked_pointer(object->base, entry.d_un.d_ptr);
    }
    if (!object->symbols || !object->strings || !object->hash || !os_peek_at(object->hash, header, sizeof header))
        return false;
    object->buckets = header[0];
    object->first = header[1];
    object->filter_words = header[2];
    return object->buckets != 0;
}

/* Whether the object defines the name by this symbol. */
static bool is_definition(const struct peeked *object, uint32_t index, struct os_definition *wanted)
{
    size_t size = strlen(wanted->name) + 1;
    char name[SYMBOL_NAME_MOST];
    ElfW(Sym) symbol;

    if (size > sizeof name || !os_peek_at(object->symbols + index * sizeof symbol, &symbol, sizeof symbol) ||
        symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0 ||
        !os_peek_at(object->strings + symbol.st_name, name, size) || memcmp(name, wanted->name, size) != 0)
        return false;
    wanted->address = object->base + symbol.st_value;
    wanted->size = symbol.st_size;
    return true;
}

static bool peek_definition(const struct peeked *object, struct os_definition *wanted)
{
    uintptr_t buckets = object->hash + 4 * sizeof(uint32_t) + object->filter_words * sizeof(ElfW(Addr));
    uintptr_t chains = buckets + (uintptr_t)object->buckets * sizeof(uint32_t);
    uint32_t hash = 5381, index, other;

    wanted->address = wanted->size = 0;
    for (const char *letter = wanted->name; *letter; letter++)
        hash = hash * 33 + (unsigned char)*letter;
    if (!peek_32(buckets + hash % object->buckets * sizeof(uint32_t), &index) || index < object->first)
        return false;
    for (unsigned i = 0; i < CHAIN_MOST; i++, index++) {
        if (!peek_32(chains + (uintptr_t)(index - object->first) * sizeof(uint32_t), &other))
            return false;
        if (((other ^ hash) & ~(uint32_t)1) == 0 && is_definition(object, index, wanted))
            return true;
        if (other & 1)
            return false;
    }
    return false;
}

struct mapping_search {
    uintptr_t address, start, end;
};

static bool is_around(const struct os_mapping *mapping, void *argument)
{
    struct mapping_search *search = argument;

    if (search->address < mapping->start || search->address >= mapping->end)
        return true;
    search->start = mapping->start;
    search->end = mapping->end;
    return false;
}

bool os_mapping_around(uintptr_t address, uintptr_t *start, uintptr_t *end)
{
    struct mapping_search search = { .address = address };
    char buffer[OS_MAPS_SHORT];

    os_maps_each(is_around, &search, buffer, sizeof buffer);
    if (search.end == 0)
        return false;
    *start = search.start;
    *end = search.end;
    return true;
}

bool os_symbols_peek(struct os_definition *definitions, size_t count, unsigned code, uintptr_t *code_start,
                     uintptr_t *code_end)
{
    const struct r_debug *debug = &_r_debug != NULL ? &_r_debug : &_dl_debug_addr != NULL ? _dl_debug_addr : NULL;
    const struct link_map *next = debug ? debug->r_map : NULL;
    struct link_map map;
    struct peeked object;

    for (unsigned i = 0; i < OBJECTS_MOST && next && os_peek_at((uintptr_t)next, &map, sizeof map); i++) {
        if (peek_object(&object, &map) && peek_definition(&object, &definitions[0])) {
            for (size_t j = 1; j < count; j++)
                (void)peek_definition(&object, &definitions[j]);
            return definitions[code].address && os_mapping_around(definitions[code].address, code_start, code_end);
        }
        next = map.l_next;
    }
    return false;
}
