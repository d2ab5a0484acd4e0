#include "front/entries.h"

#include "pool/misuse.h"

void cache_drop_no_blocks(struct thread_cache *cache, struct bin *bin, unsigned class)
{
    void *entry;

    while ((entry = cache->slots[bin->top]) != NULL && !cache_entry_is_block(class, entry)) {
        bin_set_top(bin, bin->top - 1u);
        misuse_report("free", entry, misuse_of(entry));
    }
}
