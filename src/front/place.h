/* What the sealed functions (front/sealed.h) share: they find the block of an address, and read and write its seal. */
#ifndef HAK_FRONT_PLACE_H
#define HAK_FRONT_PLACE_H

#include "front/sealed.h"
#include "pool/huge.h"
#include "superslab/superslab.h"

/* A place in a slab where a block may be. */
struct held {
    char *block;
    struct slab *slab;
    unsigned class;
};

/* False: no block of a slab in use starts at the address. */
HAK_HIDDEN bool place_find(void *address, struct held *place);
/* Reads the seal of a block that should be live, or reports misuse. */
HAK_HIDDEN bool place_read(const struct held *place, struct seal *seal, const char *function);
/* Makes the cleared block the program's, or gives its span another size. */
HAK_HIDDEN void place_seal(const struct held *place, size_t size, enum seal_kind kind);
/* The first-class heap of the block; NULL: it is a thread's. */
HAK_HIDDEN struct heap *place_heap(const struct held *place);

/* Reads a huge block's request. False: there is none, or the block was written past its end; both are reported. */
HAK_HIDDEN bool sealed_read_large(const void *block, struct huge_request *request, const char *function);
/* Whether the address is among blocks of 0 bytes. *live: the program holds the block; else misuse is reported. */
HAK_HIDDEN bool sealed_is_nothing(const void *block, bool *live, const char *function);
/* Reports a block that another kind of function frees (`claimed`) than gave it (`kind`). */
HAK_HIDDEN HAK_COLD void sealed_report_kind(const void *block, unsigned claimed, unsigned kind, const char *function);

#endif
