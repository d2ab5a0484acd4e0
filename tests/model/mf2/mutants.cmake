# hak_mf2_mutant(NAME FILE SCENARIO FAILURE FROM TO [FROM TO]...): replaces each FROM in the pool's FILE by TO. The
# program must then fail in the scenario with a line that matches FAILURE.

# ---- remote.c ----

hak_mf2_mutant(announce_before_marking remote.c drain_early "H5: slab 0 is released with blocks missing"
[[    uint32_t marked = remote_mark(slab, batch, link, function);

    if (marked && atomic_fetch_add_explicit(&slab->remote_count, marked, memory_order_acq_rel) == 0) {]]
[[    uint32_t chained = 0;
    for (const uint8_t *at = link; *at != END; at = &batch->next[*at])
        if (marks_slab(&batch->marks[*at]) == slab)
            chained += base_count_bits(batch->marks[*at].mask);
    bool first = atomic_fetch_add_explicit(&slab->remote_count, chained, memory_order_acq_rel) == 0;

    REMOTE_STEP();
    remote_mark(slab, batch, link, function);
    if (first) {]])

hak_mf2_mutant(push_each_time remote.c freers_of_a_word "H4: the queue of heap 2 has no end"
[[marked, memory_order_acq_rel) == 0) {]]
[[marked, memory_order_acq_rel) != UINT32_MAX) {]])

hak_mf2_mutant(next_read_after_count remote.c drain_queue "M3: heap 2 counts 1 slabs pending and has 2"
[[        slab = next;]]
[[        (void)next;
        slab = slab->pending_next;]])

hak_mf2_mutant(count_taken_after_marks remote.c drain_early "H5: slab 0 is released with marks not collected"
[[    uint32_t counted = atomic_exchange_explicit(&slab->remote_count, 0, memory_order_acq_rel);]]
[[    uint32_t counted = 0;]]
[[    heap_slab_freed(heap, slab, was_full, counted);]]
[[    counted += atomic_exchange_explicit(&slab->remote_count, 0, memory_order_acq_rel);
    heap_slab_freed(heap, slab, was_full, counted);]])

hak_mf2_mutant(marks_counted_before_announced remote.c drain_early
"H4: slab 0 is released while it is in 1 queues"
[[    uint32_t counted = atomic_exchange_explicit(&slab->remote_count, 0, memory_order_acq_rel);]]
[[    uint32_t counted = 0 * atomic_exchange_explicit(&slab->remote_count, 0, memory_order_acq_rel);]]
[[        local = atomic_load_explicit(&slab->local[i], memory_order_relaxed);]]
[[        counted += base_count_bits(freed);
        local = atomic_load_explicit(&slab->local[i], memory_order_relaxed);]])

hak_mf2_mutant(slab_touched_after_announcement remote.c drain_early "M1: slab 0 was written to after its release"
[[        remote_push(slab, NULL);
    }]]
[[        remote_push(slab, NULL);
        return;
    }
    REMOTE_STEP();
    slab->pending_next = NULL;]])

hak_mf2_mutant(marks_read_then_cleared remote.c drain_early "H5: slab 0 is released with blocks missing"
[[        freed = atomic_exchange_explicit(&slab->remote[i], 0, memory_order_acquire);]]
[[        freed = atomic_load_explicit(&slab->remote[i], memory_order_acquire);
        REMOTE_STEP();
        atomic_store_explicit(&slab->remote[i], 0, memory_order_relaxed);]])

hak_mf2_mutant(orphan_not_looked_at remote.c exit_last "O4: the queue of orphan 2 has 1 slabs that nobody will drain"
[[if (HAK_LIKELY(atomic_load_explicit(&owner->state, memory_order_seq_cst) == HEAP_LIVE &&
                   owner->kind != HEAP_FIRST_CLASS))]]
[[if (HAK_LIKELY(owner->id))]])

hak_mf2_mutant(orphan_looked_at_before_push remote.c exit_last
"O4: the queue of orphan 2 has 1 slabs that nobody will drain"
[[    struct slab *head = atomic_load_explicit(&owner->pending, memory_order_relaxed);]]
[[    struct slab *head = atomic_load_explicit(&owner->pending, memory_order_relaxed);
    uint32_t state = atomic_load_explicit(&owner->state, memory_order_seq_cst);]]
[[if (HAK_LIKELY(atomic_load_explicit(&owner->state, memory_order_seq_cst) == HEAP_LIVE &&
                   owner->kind != HEAP_FIRST_CLASS))]]
[[if (HAK_LIKELY(state == HEAP_LIVE))]])

hak_mf2_mutant(drained_not_forwarded remote.c forward "H1: slab 0 is changed without its owner's lock"
[[        if (HAK_LIKELY(atomic_load_explicit(&slab->owner, memory_order_relaxed) == heap)) {]]
[[        if (HAK_LIKELY(heap->id)) {]])

hak_mf2_mutant(lock_kept remote.c freers_of_an_orphan "thread 0 ends with a lock held"
[[        remote_drain(owner);
        lock_release(&owner->lock);
    } else if]]
[[        remote_drain(owner);
    } else if]])

hak_mf2_mutant(owner_not_looked_at_again remote.c adopt_orphan_locked "H1: slab 0 is changed without its owner's lock"
[[        if (atomic_load_explicit(&slab->owner, memory_order_relaxed) == owner)
            break;]]
[[        if (owner->id)
            break;]])

# Only ThreadSanitizer sees memory orders.
if(HAKMEM_SANITIZE STREQUAL "thread")
    hak_mf2_mutant(push_without_release remote.c drain_early "ThreadSanitizer: data race"
[[    } while (!atomic_compare_exchange_weak_explicit(&owner->pending, &head, slab, memory_order_seq_cst,]]
[[    } while (!atomic_compare_exchange_weak_explicit(&owner->pending, &head, slab, memory_order_relaxed,]])
endif()

# ---- registry.c ----

hak_mf2_mutant(orphan_after_drain registry.c exit_last "O4: the queue of orphan 2 has 1 slabs that nobody will drain"
[[    heap_leave(heap);
    lock_release(&registry.lock);]]
[[    lock_acquire(&heap->lock);
    remote_drain(heap);
    lock_release(&heap->lock);
    REMOTE_STEP();
    heap_leave(heap);
    lock_release(&registry.lock);]]
[[    remote_drain(heap);
    heap_release_warm(heap);
    lock_release(&heap->lock);
    atomic_fetch_sub_explicit]]
[[    heap_release_warm(heap);
    lock_release(&heap->lock);
    atomic_fetch_sub_explicit]])

hak_mf2_mutant(count_after_push remote.c drain_each "M3: heap 2 counts 0 slabs pending and has 1"
[[    remote_count_pending(owner, 1); /* M3 */]]
[[]]
[[    shared_pool_want_purge();]]
[[    remote_count_pending(owner, 1);]])
