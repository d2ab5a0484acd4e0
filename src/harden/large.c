#include "harden/large.h"

#include <string.h>

/* Bytes of the guard word that fit before the inaccessible pages. */
static size_t large_word_bytes(const struct huge_request *request)
{
    return request->guard ? base_min(SEAL_BYTES, request->guard - request->size) : SEAL_BYTES;
}

/* Seals a block whose bytes from request->size on are zero and accessible. */
static void large_seal(char *block, struct huge_request *request, size_t mapping)
{
    uint64_t word = seal_word(block);
    size_t guard = base_align_up(base_max(request->size, 1), os_page_size());

    request->guard = harden_close(block + guard, mapping - guard) ? guard : 0;
    memcpy(block + request->size, &word, large_word_bytes(request));
    huge_set_request(block, request);
}

/* Undoes large_seal: the mapping is accessible, and zero behind the program's bytes. False: the kernel refused. */
static bool large_unseal(char *block, const struct huge_request *request, size_t mapping)
{
    if (request->guard && !os_protect(block + request->guard, mapping - request->guard, true))
        return false;
    memset(block + request->size, 0, large_word_bytes(request));
    return true;
}

void *large_allocate(struct heap *heap, size_t alignment, size_t size, bool *zero)
{
    struct huge_request request = { .size = size };
    size_t mapping;
    void *block = huge_allocate(large_mapping(size), alignment, zero, heap);

    if (block == NULL)
        return NULL;
    mapping = huge_size(block, NULL);
    large_seal(block, &request, mapping);
    return block;
}

enum seal_state large_read(const void *block, struct huge_request *request, size_t *changed)
{
    uint64_t word = seal_word(block);
    size_t mapping;

    if (!huge_get_request(block, request, &mapping))
        return SEAL_NONE;
    for (size_t i = 0; i < large_word_bytes(request); i++) {
        if (((const char *)block)[request->size + i] != ((const char *)&word)[i]) {
            *changed = request->size + i;
            return SEAL_BROKEN;
        }
    }
    return SEAL_WHOLE;
}

void *large_resize(void *block, const struct huge_request *request, size_t size, bool may_move,
                   void *(*resize)(void *block, size_t size, bool may_move))
{
    struct huge_request changed = *request;
    size_t mapping = huge_size(block, NULL);
    void *resized = NULL;

    if (!large_unseal(block, request, mapping))
        return NULL;
    if (size < request->size)
        memset((char *)block + size, 0, base_min(request->size - size, os_page_size() + SEAL_BYTES));
    resized = resize(block, large_mapping(size), may_move);
    if (resized)
        changed.size = size;
    large_seal(resized ? resized : block, &changed, huge_size(resized ? resized : block, NULL));
    return resized;
}
