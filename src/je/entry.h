/*
 * Gives the operations of je/counted.h the names of front's. A file that includes this header first calls them by those
 * names, and so do the files of api/ that it includes: libhakmem-je has the same functions as libhakmem, compiled here.
 */
#ifndef HAK_JE_ENTRY_H
#define HAK_JE_ENTRY_H

#include "je/counted.h"

/* fast.h */
#define front_malloc_from counted_malloc_from
#define front_malloc_or counted_malloc_or
#define front_malloc counted_malloc
#define front_malloc_medium counted_malloc_miss
#define front_free_told counted_free_told
#define front_free_sized_hit counted_free_sized_hit
#define front_free_or counted_free_or
#define front_free counted_free

/* front.h */
#define front_malloc_slow counted_malloc_miss
#define front_malloc_at counted_malloc_at
#define front_malloc_cohort counted_malloc_cohort
#define front_free_slow counted_free_slow
#define front_free_named counted_free_named
#define front_calloc counted_calloc
#define front_aligned_alloc counted_aligned_alloc
#define front_realloc counted_realloc
#define front_expand counted_expand
#define front_resize_in_place counted_resize_in_place
#define front_free_sized counted_free_sized
#define front_malloc_batch counted_malloc_batch
#define front_free_batch counted_free_batch
#define front_heap_aligned_alloc counted_heap_aligned_alloc
#define front_heap_realloc counted_heap_realloc

#endif
