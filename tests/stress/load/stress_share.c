/* Heaps that many threads share, and threads that idle. */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>

#include "stress.h"

static uint64_t share_seed;
static _Atomic uint64_t share_threads;

static void start_thread_chance(struct chance *chance)
{
    chance_start(chance, share_seed + atomic_fetch_add(&share_threads, 1));
}

/* A table of blocks. Threads take turns at its cells. */
enum { TABLE_CELLS = 64, CELL_BLOCKS = 32 };

struct cell {
    pthread_mutex_t lock;
    struct block blocks[CELL_BLOCKS];
};
static struct cell *table;

static void table_start(void)
{
    if (table != NULL)
        return;
    table = support_map(TABLE_CELLS * sizeof *table);
    for (size_t i = 0; i < TABLE_CELLS; i++)
        pthread_mutex_init(&table[i].lock, NULL);
}

/* Frees or allocates each block of a random cell. */
static void table_turn(struct chance *chance, hak_heap_t *heap)
{
    struct cell *cell = &table[chance_below(chance, TABLE_CELLS)];

    pthread_mutex_lock(&cell->lock);
    for (size_t i = 0; i < CELL_BLOCKS; i++) {
        struct block *block = &cell->blocks[i];
        if (block->start != NULL) {
            stress_free(block);
        } else if (chance_is(chance, 700)) {
            size_t size = stress_size(chance);
            void *start = heap != NULL ? hak_heap_malloc(heap, size) : hak_malloc(size);
            block_adopt(block, start, size, 1, chance_next(chance));
            CHECK(hak_heap_of(start) == heap, "%p is in the wrong heap", start);
        }
    }
    pthread_mutex_unlock(&cell->lock);
}

static void table_empty(bool free_blocks)
{
    for (size_t i = 0; i < TABLE_CELLS; i++) {
        for (size_t k = 0; k < CELL_BLOCKS; k++) {
            struct block *block = &table[i].blocks[k];
            if (block->start == NULL)
                continue;
            if (free_blocks)
                stress_free(block);
            else
                block_release(block);
        }
    }
}

/* ---- Heaps ---- */

enum { HEAP_THREADS = 4, HEAP_TURNS = 400, HEAP_LIVES = 4 };

static void *run_in_heap(void *argument)
{
    struct chance chance;

    start_thread_chance(&chance);
    for (unsigned i = 0; i < HEAP_TURNS; i++) {
        void *own = hak_malloc(chance_below(&chance, 300)); /* the thread's own heap is in use too */

        CHECK(own != NULL, "malloc");
        table_turn(&chance, argument);
        hak_free(own);
    }
    return NULL;
}

void stress_heaps(struct chance *chance)
{
    table_start();
    share_seed = chance_next(chance);
    for (unsigned life = 0; life < HEAP_LIVES; life++) {
        hak_heap_t *heap = hak_heap_new();

        CHECK(heap != NULL, "no heap");
        stress_threads(HEAP_THREADS, run_in_heap, heap, 0);
        table_empty(life % 2 == 1);
        hak_heap_destroy(heap);
    }
}

/* ---- Idle: a thread frees and allocates, then idles longer than the adoption threshold ---- */

enum { IDLE_THREADS = 6, IDLE_NAPS = 12, IDLE_TURNS = 25 };

static void *run_idler(void *argument)
{
    struct chance chance;
    (void)argument;

    start_thread_chance(&chance);
    for (unsigned nap = 0; nap < IDLE_NAPS; nap++) {
        for (unsigned i = 0; i < IDLE_TURNS; i++)
            table_turn(&chance, NULL);
        if (chance_is(&chance, 700))
            hak_thread_idle();
        if (chance_is(&chance, 600))
            support_sleep_ms(1 + (unsigned)chance_below(&chance, 5));
    }
    return NULL;
}

void stress_idle(struct chance *chance)
{
    table_start();
    share_seed = chance_next(chance);
    stress_threads(IDLE_THREADS, run_idler, NULL, 0);
    table_empty(true);
}
