/* Memory bounds of a program whose tenants have scopes (hakmem/scope.h), beside the same with heaps by hand. */
#define _GNU_SOURCE
#include <hakmem/hakmem.h>
#include <hakmem/scope.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bounds.h"

enum { TENANTS = 100, ROUNDS = 10, MANY = 10000 };

/* A tenant has a scope or a heap. */
struct tenant {
    hak_scope_t *scope;
    hak_heap_t *heap;
    void **blocks;
    size_t count;
};

struct held {
    size_t resident, live;
};

static void *tenant_malloc(const struct tenant *tenant, size_t size)
{
    void *block;

    if (tenant->heap) {
        block = hak_heap_malloc(tenant->heap, size);
    } else {
        CHECK(hak_scope_enter(tenant->scope) == 0, "a scope cannot be entered");
        block = hak_malloc(size);
        hak_scope_leave(tenant->scope);
    }
    CHECK(block != NULL, "no block of %zu bytes", size);
    memset(block, 0x5a, size);
    return block;
}

static hak_scope_t *scope_of(const char *name)
{
    hak_scope_t *scope = hak_scope_new(name, NULL, 0);

    CHECK(scope != NULL, "no scope");
    return scope;
}

/* Fills each tenant with `bytes` of blocks of 16 to 1024 bytes, then replaces half of the blocks ROUNDS times. */
static struct held churn(size_t bytes, bool by_hand)
{
    struct tenant *tenants = support_map(TENANTS * sizeof *tenants);
    size_t most = bytes / 16, live = 0, start;
    struct chance chance;

    chance_start(&chance, 1);
    for (size_t i = 0; i < TENANTS; i++) {
        tenants[i].scope = by_hand ? NULL : scope_of("tenant");
        tenants[i].heap = by_hand ? hak_heap_new() : NULL;
        tenants[i].blocks = support_map(most * sizeof(void *));
    }
    start = bounds_start();
    for (size_t i = 0; i < TENANTS; i++)
        for (size_t sum = 0; sum < bytes; tenants[i].count++) {
            tenants[i].blocks[tenants[i].count] = tenant_malloc(&tenants[i], chance_log(&chance, 16, KIB));
            sum += hak_usable_size(tenants[i].blocks[tenants[i].count]);
        }
    for (unsigned round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < TENANTS; i++) {
            for (size_t j = 0; j < tenants[i].count; j++)
                if (chance_is(&chance, 500)) {
                    hak_free(tenants[i].blocks[j]);
                    tenants[i].blocks[j] = NULL;
                }
            for (size_t j = 0; j < tenants[i].count; j++)
                if (tenants[i].blocks[j] == NULL)
                    tenants[i].blocks[j] = tenant_malloc(&tenants[i], chance_log(&chance, 16, KIB));
        }
    bounds_idle();
    bounds_handful();
    for (size_t i = 0; i < TENANTS; i++) {
        live += tenants[i].count * sizeof(void *); /* the lists are resident, too */
        for (size_t j = 0; j < tenants[i].count; j++)
            live += hak_usable_size(tenants[i].blocks[j]);
    }
    return (struct held){ bounds_above(support_rss(), start), live };
}

/* In a child, because what one way leaves would serve the other. */
static struct held churn_apart(size_t bytes, bool by_hand)
{
    struct held *found = support_map_shared(sizeof *found);
    int status = 0;
    pid_t child = fork();

    CHECK(child >= 0, "fork");
    if (child == 0) {
        *found = churn(bytes, by_hand);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "a child ended with %#x", (unsigned)status);
    return *found;
}

void case_scopes_tenants(void)
{
    static const struct {
        size_t bytes, per_cent;
    } of[] = { { MIB, 135 }, { 8 * MIB, 115 } };

    for (size_t i = 0; i < 2; i++) {
        struct held scopes = churn_apart(of[i].bytes, false), heaps = churn_apart(of[i].bytes, true);
        bounds_note("live in 100 tenants", scopes.live);
        bounds_note("resident with a heap for each", heaps.resident);
        bounds_figure("resident with a scope for each", scopes.resident, scopes.live / 100 * of[i].per_cent);
    }
}

/* What a scope says that is resident, beside what the system says of the process, full and then half empty. */
void case_scopes_resident(void)
{
    enum { BLOCKS = 200000 };
    void **blocks = support_map(BLOCKS * sizeof(void *));
    struct tenant tenant = { .scope = scope_of("tenant") };
    struct chance chance;
    size_t start;

    memset(blocks, 0xff, BLOCKS * sizeof(void *)); /* resident before the start is measured */
    chance_start(&chance, 1);
    start = bounds_start();
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = tenant_malloc(&tenant, chance_log(&chance, 16, 2 * KIB));
    for (unsigned half = 0; half < 2; half++) {
        size_t truth = bounds_above(support_rss(), start), said = hak_scope_resident(tenant.scope);
        bounds_note("resident by the scope", said);
        bounds_figure("by how much the system says otherwise", said > truth ? said - truth : truth - said, truth / 50);
        for (size_t i = 0; i < BLOCKS; i += 2) {
            hak_free(blocks[i]);
            blocks[i] = NULL;
        }
        bounds_idle();
        bounds_handful();
        hak_collect(true);
    }
}

static void one_scope_each(hak_scope_t **scopes, bool keep)
{
    for (size_t i = 0; i < MANY; i++) {
        struct tenant tenant = { .scope = scope_of("one of many") };
        void *block = tenant_malloc(&tenant, 100);
        scopes[i] = tenant.scope;
        if (i % 2)
            hak_free(block);
        if (!keep)
            CHECK(hak_scope_destroy(tenant.scope, HAK_SCOPE_FREE) == 0, "a scope cannot be destroyed");
    }
}

void case_scopes_many(void)
{
    hak_scope_t **scopes = support_map(MANY * sizeof(hak_scope_t *));
    size_t start;
    double began, made;

    memset(scopes, 0xff, MANY * sizeof *scopes);
    start = bounds_start();
    began = support_seconds();
    one_scope_each(scopes, false);
    printf("  10,000 scopes in turn: %.1f ms\n", (support_seconds() - began) * 1e3);
    bounds_figure("held after 10,000 scopes in turn", bounds_above(support_rss(), start), 2 * MIB);
    began = support_seconds();
    one_scope_each(scopes, true);
    made = support_seconds();
    bounds_figure("held by 10,000 scopes, half of them with one block", bounds_above(support_rss(), start), 100 * MIB);
    printf("  10,000 scopes: made in %.1f ms", (made - began) * 1e3);
    began = support_seconds();
    for (size_t i = 0; i < MANY; i++)
        CHECK(hak_scope_destroy(scopes[i], HAK_SCOPE_FREE) == 0, "a scope cannot be destroyed");
    printf(", gone in %.1f ms\n", (support_seconds() - began) * 1e3);
    hak_collect(true);
    bounds_figure("left of them", bounds_above(support_rss(), start), 8 * MIB);
}

void case_scopes_free(void)
{
    struct tenant tenant = { .scope = scope_of("tenant") };
    size_t start = bounds_start();
    double began;

    for (size_t bytes = 0; bytes < GIB; bytes += 1000)
        tenant_malloc(&tenant, 1000);
    CHECK(bounds_above(support_rss(), start) >= GIB, "the blocks are not resident");
    began = support_seconds();
    CHECK(hak_scope_destroy(tenant.scope, HAK_SCOPE_FREE) == 0, "a scope cannot be destroyed");
    printf("  1 GiB of blocks of 1,000 bytes: freed in %.1f ms\n", (support_seconds() - began) * 1e3);
    hak_collect(true);
    bounds_figure("left of 1 GiB", bounds_above(support_rss(), start), 4 * MIB);
}
