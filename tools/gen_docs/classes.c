/* docs/classes.md, from src/config/classes.h. */
#include "config/classes.h"

#include "gen_docs.h"

struct row {
    size_t size, units, cached;
};

static const struct row slabs[] = {
#define ROW(size, units, cached) { size, units, cached },
    SLAB_CLASS_TABLE(ROW)
#undef ROW
};

static const struct row spans[] = {
#define ROW(units, cached) { (units) * UNIT_SIZE, units, cached },
    SPAN_CLASS_TABLE(ROW)
#undef ROW
};

static double percent(size_t part, size_t whole)
{
    return 100.0 * (double)part / (double)whole;
}

/* The smallest request of a class wastes most of its block. */
static double worst_waste(size_t smallest, size_t size)
{
    return percent(size - smallest, size);
}

static void print_slab(FILE *out, const struct row *row, size_t smallest)
{
    size_t bytes = row->units * UNIT_SIZE, blocks = bytes / row->size;
    fprintf(out, "| %zu | %zu to %zu | %.0f %% | %zu KiB | %zu | %.1f %% | %zu |\n", row->size, smallest, row->size,
            worst_waste(base_max(smallest, 1), row->size), bytes / HAK_KIB, blocks,
            percent(bytes - blocks * row->size, bytes), row->cached);
}

void gen_docs_classes(FILE *out)
{
    size_t smallest = 0;
    fprintf(out,
            "# Size classes\n"
            "\n"
            "Made by `gen_docs classes` from `src/config/classes.h`; change the table, not this file.\n"
            "\n"
            "A request is rounded up to the next class. *Waste* is what the smallest request of a class leaves unused of\n"
            "its block; *tail* is what does not divide into blocks at the end of a slab. *Cached* is the most blocks of\n"
            "the class that one thread keeps; `HAKMEM_FC_CAP` and `HAKMEM_CACHE_BYTES` bound it further.\n"
            "\n"
            "## Slabs\n"
            "\n"
            "Blocks side by side in units of %zu KiB; none has a header.\n"
            "\n"
            "| Block | Requests | Waste | Slab | Blocks | Tail | Cached |\n"
            "|---:|---:|---:|---:|---:|---:|---:|\n",
            UNIT_SIZE / HAK_KIB);
    for (size_t i = 0; i < sizeof slabs / sizeof slabs[0]; i++) {
        print_slab(out, &slabs[i], smallest);
        smallest = slabs[i].size + 1;
    }
    fprintf(out,
            "\n"
            "## Spans\n"
            "\n"
            "One block of whole units.\n"
            "\n"
            "| Block | Requests | Waste | Cached |\n"
            "|---:|---:|---:|---:|\n");
    for (size_t i = 0; i < sizeof spans / sizeof spans[0]; i++) {
        fprintf(out, "| %zu KiB | %zu to %zu | %.0f %% | %zu |\n", spans[i].size / HAK_KIB, smallest, spans[i].size,
                worst_waste(smallest, spans[i].size), spans[i].cached);
        smallest = spans[i].size + 1;
    }
    fprintf(out,
            "\n"
            "Requests above %zu KiB have a mapping of their own, of whole pages.\n",
            POOLED_MAX / HAK_KIB);
}
