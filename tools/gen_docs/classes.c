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

/* The smallest request of a class wastes most of the block. */
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
    fprintf(
        out,
        "# Size classes\n"
        "\n"
        "This page lists every [size class](glossary.md#memory-and-its-sizes). `gen_docs classes` makes it from\n"
        "`src/config/classes.h`; change the table there, not this file.\n"
        "\n"
        "HAKMEM rounds a request up to the next class. *Waste* is the part of the block that the smallest request of\n"
        "the class leaves unused. *Tail* is the part at the end of a slab that holds no block. *Cached* is the most\n"
        "blocks of the class that a thread cache keeps, unless the thread is alone in its process and has\n"
        "[deep bins](glossary.md#who-holds-memory). `HAKMEM_FC_CAP` and `HAKMEM_CACHE_BYTES` may lower it.\n"
        "\n"
        "## Slabs\n"
        "\n"
        "Blocks lie side by side in units of %zu KiB. They have no headers.\n"
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
            "A span is one block of whole units.\n"
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
            "A request above %zu KiB gets a mapping of its own, of whole units.\n",
            POOLED_MAX / HAK_KIB);
}
