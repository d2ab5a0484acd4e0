/* ELF symbol tables as the dynamic linker keeps them: System V gABI chapter 5, and DT_GNU_HASH of the GNU linkers. */
#define _GNU_SOURCE
#include "os/symbols.h"

#include <elf.h>
#include <link.h>
#include <string.h>

/* Weak: static programs lack these, and the linker must not add them. glibc has _r_debug, musl _dl_debug_addr. */
extern struct r_debug _r_debug __attribute__((weak));
extern struct r_debug *_dl_debug_addr __attribute__((weak));
#pragma weak dl_iterate_phdr

/* The C library is recognised by these names: it defines both. */
static const char *const libc_names[] = { "dl_iterate_phdr", "__libc_start_main" };

struct table {
    const ElfW(Sym) *symbols;
    const char *strings;
    const uint32_t *gnu_hash; /* NULL: there is none */
    const Elf32_Word *hash;
    uintptr_t base;
    bool data;            /* data is looked for, too */
    const ElfW(Sym) *found; /* the last definition */
};

/* The file has offsets here. glibc's linker replaces them by addresses, except in memory that it cannot write to.
 * musl's leaves the offsets. */
static const void *dynamic_pointer(uintptr_t base, const ElfW(Dyn) *entry)
{
    uintptr_t value = entry->d_un.d_ptr;
    return (const void *)(value < base ? value + base : value);
}

static bool table_of(struct table *table, uintptr_t base, const ElfW(Dyn) *dynamic)
{
    *table = (struct table){ .base = base };
    for (const ElfW(Dyn) *entry = dynamic; entry != NULL && entry->d_tag != DT_NULL; entry++)
        switch (entry->d_tag) {
        case DT_SYMTAB:
            table->symbols = dynamic_pointer(base, entry);
            break;
        case DT_STRTAB:
            table->strings = dynamic_pointer(base, entry);
            break;
        case DT_GNU_HASH:
            table->gnu_hash = dynamic_pointer(base, entry);
            break;
        case DT_HASH:
            table->hash = dynamic_pointer(base, entry);
            break;
        default:
            break;
        }
    return table->symbols != NULL && table->strings != NULL;
}

/* The symbol's address if it defines the name for other objects. An entry without a section is a reference, even if it
 * has an address: a program at a fixed place has stubs, at which it calls functions whose address it takes. An indirect
 * function's value is not its address. */
static void *definition(struct table *table, uint32_t index, const char *name)
{
    const ElfW(Sym) *symbol = &table->symbols[index];
    unsigned type = symbol->st_info & 15, binding = symbol->st_info >> 4;

    if (symbol->st_shndx == SHN_UNDEF ||
        (type != STT_FUNC && type != STT_NOTYPE && !(table->data && type == STT_OBJECT)) ||
        (binding != STB_GLOBAL && binding != STB_WEAK) || strcmp(table->strings + symbol->st_name, name) != 0)
        return NULL;
    table->found = symbol;
    return (void *)(table->base + symbol->st_value);
}

static uint32_t gnu_hash_of(const char *name)
{
    uint32_t hash = 5381;
    for (; *name != '\0'; name++)
        hash = hash * 33 + (unsigned char)*name;
    return hash;
}

static uint32_t sysv_hash_of(const char *name)
{
    uint32_t hash = 0;
    for (; *name != '\0'; name++) {
        hash = (hash << 4) + (unsigned char)*name;
        hash = (hash ^ ((hash & 0xf0000000) >> 24)) & 0x0fffffff;
    }
    return hash;
}

/* Header: number of buckets, index of the first symbol, words of the Bloom filter, its shift. Then the filter, the
 * buckets, and the symbols' hashes; the lowest bit of a hash marks the end of a chain. */
static void *find_gnu(struct table *table, const char *name, uint32_t hash)
{
    enum { FILTER_BITS = sizeof(ElfW(Addr)) * CHAR_BIT };
    const uint32_t *header = table->gnu_hash;
    uint32_t buckets = header[0], first = header[1], filter_words = header[2];
    const uint32_t *bucket = header + 4 + filter_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chain = bucket + buckets;
    ElfW(Addr) filter = ((const ElfW(Addr) *)(header + 4))[(hash / FILTER_BITS) & (filter_words - 1)];
    uint32_t index;

    if (!((filter >> (hash % FILTER_BITS)) & (filter >> ((hash >> header[3]) % FILTER_BITS)) & 1) || buckets == 0)
        return NULL;
    index = bucket[hash % buckets];
    if (index < first)
        return NULL;
    for (;; index++) {
        uint32_t other = chain[index - first];
        void *address = ((other ^ hash) & ~(uint32_t)1) == 0 ? definition(table, index, name) : NULL;
        if (address != NULL || (other & 1) != 0)
            return address;
    }
}

/* Header: number of buckets, number of chains. Then the buckets and the chains; 0 ends a chain. */
static void *find_sysv(struct table *table, const char *name)
{
    const Elf32_Word *header = table->hash, *bucket = header + 2, *chain = bucket + header[0];
    void *address = NULL;

    if (header[0] == 0)
        return NULL;
    for (Elf32_Word index = bucket[sysv_hash_of(name) % header[0]]; index != 0 && address == NULL; index = chain[index])
        address = definition(table, index, name);
    return address;
}

static void *find(struct table *table, const char *name, uint32_t hash)
{
    if (table->gnu_hash != NULL)
        return find_gnu(table, name, hash);
    return table->hash != NULL ? find_sysv(table, name) : NULL;
}

static bool is_libc(struct table *table)
{
    for (size_t i = 0; i < sizeof libc_names / sizeof libc_names[0]; i++)
        if (find(table, libc_names[i], gnu_hash_of(libc_names[i])) == NULL)
            return false;
    return true;
}

static void forget(struct os_symbol *symbols, size_t count)
{
    for (size_t i = 0; i < count; i++)
        symbols[i].before = NULL;
}

/* NULL in a static program. */
static const struct link_map *first_object(void)
{
    if (&_r_debug != NULL)
        return _r_debug.r_map;
    return &_dl_debug_addr != NULL && _dl_debug_addr != NULL ? _dl_debug_addr->r_map : NULL;
}

bool os_symbols_before(struct os_symbol *symbols, size_t count)
{
    struct table table;

    forget(symbols, count);
    for (size_t i = 0; i < count; i++)
        symbols[i].hash = gnu_hash_of(symbols[i].name);
    for (const struct link_map *map = first_object(); map != NULL; map = map->l_next) {
        if (!table_of(&table, map->l_addr, map->l_ld))
            continue;
        if (find(&table, symbols[0].name, symbols[0].hash) == symbols[0].own)
            return true;
        if (is_libc(&table))
            break;
        for (size_t i = 0; i < count; i++)
            if (symbols[i].before == NULL)
                symbols[i].before = find(&table, symbols[i].name, symbols[i].hash);
    }
    forget(symbols, count);
    return false;
}

static bool begins_with_one_of(const char *path, const char *const *beginnings)
{
    const char *slash = strrchr(path, '/'), *file = slash == NULL ? path : slash + 1;

    for (; *beginnings != NULL; beginnings++)
        if (strncmp(file, *beginnings, strlen(*beginnings)) == 0)
            return true;
    return false;
}

bool os_symbol_is_behind(const char *name, const void *own, const char *const *exceptions)
{
    uint32_t hash = gnu_hash_of(name);
    bool behind = false;
    struct table table;

    for (const struct link_map *map = first_object(); map != NULL; map = map->l_next) {
        void *address = table_of(&table, map->l_addr, map->l_ld) ? find(&table, name, hash) : NULL;
        if (behind && address != NULL && !begins_with_one_of(map->l_name, exceptions))
            return true;
        behind |= address == own;
    }
    return false;
}

/* ---- A symbol of certain libraries ---- */

struct search {
    const char *name;
    const char *const *libraries;
    void *found;
};

static int look_into(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct search *search = argument;
    struct table table;

    (void)size;
    if (!begins_with_one_of(info->dlpi_name, search->libraries))
        return 0;
    for (unsigned i = 0; i < info->dlpi_phnum && search->found == NULL; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC &&
            table_of(&table, info->dlpi_addr, (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr)))
            search->found = find(&table, search->name, gnu_hash_of(search->name));
    return search->found != NULL;
}

void *os_symbol_of(const char *const *libraries, const char *name)
{
    struct search search = { name, libraries, NULL };

    if (dl_iterate_phdr != NULL)
        dl_iterate_phdr(look_into, &search);
    return search.found;
}

/* ---- What one object defines ---- */

struct definitions {
    struct os_definition *wanted;
    size_t count;
    uintptr_t *code_start, *code_end;
};

static int look_for_all(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct definitions *definitions = argument;
    struct table table = { 0 };

    (void)size;
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            table_of(&table, info->dlpi_addr, (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
    table.data = true;
    if (!table.symbols || !table.strings ||
        !find(&table, definitions->wanted[0].name, gnu_hash_of(definitions->wanted[0].name)))
        return 0;
    for (size_t i = 0; i < definitions->count; i++) {
        struct os_definition *wanted = &definitions->wanted[i];
        wanted->address = (uintptr_t)find(&table, wanted->name, gnu_hash_of(wanted->name));
        wanted->size = wanted->address ? table.found->st_size : 0;
    }
    for (unsigned i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_LOAD && (info->dlpi_phdr[i].p_flags & PF_X)) {
            *definitions->code_start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            *definitions->code_end = *definitions->code_start + info->dlpi_phdr[i].p_memsz;
        }
    return 1;
}

bool os_symbols_defined(struct os_definition *definitions, size_t count, uintptr_t *code_start, uintptr_t *code_end)
{
    struct definitions all = { definitions, count, code_start, code_end };

    return dl_iterate_phdr != NULL && dl_iterate_phdr(look_for_all, &all) != 0;
}
