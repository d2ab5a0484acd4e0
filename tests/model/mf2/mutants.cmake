# hak_mf2_mutant(NAME FILE SCENARIO FAILURE FROM TO [FROM TO]...): replaces each FROM in FILE of src/ by TO. The program
# must then fail in the scenario with a line that matches FAILURE.

# ---- remote.c: the steps ----

hak_mf2_mutant(announce_before_marking pool/remote.c drain_early "H5: slab 0 is released with blocks missing"
[[    uint32_t marked = remote_mark(slab, batch, link, function);
]]
[[]]
[[    if (marked && atomic_fetch_add_explicit(&slab->remote_count, marked, memory_order_acq_rel) == 0) {]]
[[    uint32_t chained = 0;
    for (const uint8_t *at = link; *at != END; at = &batch->next[*at])
        if (marks_slab(&batch->marks[*at]) == slab)
            chained += base_count_bits(batch->marks[*at].mask);
    bool first = atomic_fetch_add_explicit(&slab->remote_count, chained, memory_order_acq_rel) == 0;

    remote_mark(slab, batch, link, function);
    if (first) {]])

hak_mf2_mutant(push_each_time pool/remote.c freers_of_a_word "H4: the queue of heap 2 has no end"
[[marked, memory_order_acq_rel) == 0) {]]
[[marked, memory_order_acq_rel) != UINT32_MAX) {]])

hak_mf2_mutant(next_read_after_count pool/remote.c drain_queue
"race: thread 1 writes slab 1.pending_next, and thread 0 read it"
[[        slab = next;]]
[[        (void)next;
        slab = slab->pending_next;]])

hak_mf2_mutant(count_taken_after_marks pool/remote.c drain_early "H5: slab 0 is released with marks not collected"
[[    uint32_t counted = atomic_exchange_explicit(&slab->remote_count, 0, memory_order_acq_rel);]]
[[    uint32_t counted = 0;]]
[[    heap_slab_freed(heap, slab, was_full, counted, leaving);]]
[[    counted += atomic_exchange_explicit(&slab->remote_count, 0, memory_order_acq_rel);
    heap_slab_freed(heap, slab, was_full, counted, leaving);]])

hak_mf2_mutant(marks_counted_before_announced pool/remote.c drain_early
"H4: slab 0 is released while it is in 1 queues"
[[    uint32_t counted = atomic_exchange_explicit(&slab->remote_count, 0, memory_order_acq_rel);]]
[[    uint32_t counted = 0 * atomic_exchange_explicit(&slab->remote_count, 0, memory_order_acq_rel);]]
[[        local = atomic_load_explicit(&slab->local[i], memory_order_relaxed);]]
[[        counted += base_count_bits(freed);
        local = atomic_load_explicit(&slab->local[i], memory_order_relaxed);]])

hak_mf2_mutant(slab_touched_after_announcement pool/remote.c drain_early
"race: thread 1 writes slab 0.pending_next, and thread 0 read it"
[[        remote_push(slab, NULL);
    }]]
[[        remote_push(slab, NULL);
        return;
    }
    slab->pending_next = NULL;]])

hak_mf2_mutant(marks_read_then_cleared pool/remote.c drain_early "H5: slab 0 is released with blocks missing"
[[        freed = atomic_exchange_explicit(&slab->remote[i], 0, memory_order_acquire);]]
[[        freed = atomic_load_explicit(&slab->remote[i], memory_order_acquire);
        atomic_store_explicit(&slab->remote[i], 0, memory_order_relaxed);]])

hak_mf2_mutant(orphan_not_looked_at pool/remote.c exit_last
"O4: the queue of orphan 2 has 1 slabs that nobody will drain"
[[if (HAK_LIKELY(atomic_load_explicit(&owner->state, memory_order_seq_cst) == HEAP_LIVE &&
                   owner->kind != HEAP_FIRST_CLASS))]]
[[if (HAK_LIKELY(owner->id))]])

hak_mf2_mutant(orphan_looked_at_before_push pool/remote.c exit_last
"O4: the queue of orphan 2 has 1 slabs that nobody will drain"
[[    struct slab *head = atomic_load_explicit(&owner->pending, memory_order_relaxed);]]
[[    struct slab *head = atomic_load_explicit(&owner->pending, memory_order_relaxed);
    uint32_t state = atomic_load_explicit(&owner->state, memory_order_seq_cst);]]
[[if (HAK_LIKELY(atomic_load_explicit(&owner->state, memory_order_seq_cst) == HEAP_LIVE &&
                   owner->kind != HEAP_FIRST_CLASS))]]
[[if (HAK_LIKELY(state == HEAP_LIVE))]])

hak_mf2_mutant(drained_not_forwarded pool/remote.c forward "H1: slab 0 is changed without its owner's lock"
[[        if (HAK_LIKELY(atomic_load_explicit(&slab->owner, memory_order_relaxed) == heap)) {]]
[[        if (HAK_LIKELY(heap->id)) {]])

hak_mf2_mutant(lock_kept pool/remote.c freers_of_an_orphan "thread 0 ends with a lock held"
[[        remote_drain(owner);
        lock_release(&owner->lock);
    } else if]]
[[        remote_drain(owner);
    } else if]])

hak_mf2_mutant(owner_not_looked_at_again pool/remote.c adopt_orphan_locked
"H1: slab 0 is changed without its owner's lock"
[[        if (atomic_load_explicit(&slab->owner, memory_order_relaxed) == owner)
            break;]]
[[        if (owner->id)
            break;]])

# ---- registry.c ----

hak_mf2_mutant(orphan_after_drain pool/registry.c exit_last
"O4: the queue of orphan 2 has 1 slabs that nobody will drain"
[[    heap_leave(heap);
    set_live_threads]]
[[    lock_acquire(&heap->lock);
    remote_drain(heap);
    lock_release(&heap->lock);
    heap_leave(heap);
    set_live_threads]]
[[    remote_drain(heap);
    heap_release_warm(heap);
    lock_release(&heap->lock);
}

/* Whether a signal handler]]
[[    heap_release_warm(heap);
    lock_release(&heap->lock);
}

/* Whether a signal handler]])

hak_mf2_mutant(count_after_push pool/remote.c drain_each "M3: heap 2 counts 0 slabs pending and has 1"
[[    remote_count_pending(owner, 1); /* M3 */]]
[[]]
[[    shared_pool_want_purge();]]
[[    remote_count_pending(owner, 1);]])

hak_mf2_mutant(request_read_relaxed pool/remote.c drain_tick
"G2: heap 2 has 1 slabs pending, and no purge is requested"
[[    shared_pool_want_purge();]]
[[    if (atomic_load_explicit(&shared_pool.next_purge_ms, memory_order_relaxed) == 0)
        shared_pool_want_purge_slow();]])

# The thread that ends changes the state when the next thread may have the heap.
hak_mf2_mutant(left_after_listed pool/registry.c exit_begin "O5: heap 2 has state 2 and is in list 1"
[[    atomic_store(&heap->state, HEAP_ORPHAN);
    list_add(list_remove(heap), LIST_LEFT, true);]]
[[    list_add(list_remove(heap), LIST_LEFT, true);]]
[[memory_order_relaxed) - 1);
    lock_release(&registry.lock);]]
[[memory_order_relaxed) - 1);
    lock_release(&registry.lock);
    atomic_store(&heap->state, HEAP_ORPHAN);]])

# Two threads that begin or end at once publish their shares in the other order than they counted themselves.
hak_mf2_mutant(shares_unlocked pool/registry.c exit_begin "3 threads have heaps, and each may keep [0-9]+ units"
[[        set_live_threads(atomic_load_explicit(&registry.live_threads, memory_order_relaxed) + 1);
    }
    lock_release(&registry.lock);]]
[[    }
    lock_release(&registry.lock);
    if (heap)
        set_live_threads(atomic_fetch_add_explicit(&registry.live_threads, 1, memory_order_relaxed) + 1);]]
[[    set_live_threads(atomic_load_explicit(&registry.live_threads, memory_order_relaxed) - 1);
    lock_release(&registry.lock);]]
[[    lock_release(&registry.lock);
    set_live_threads(atomic_fetch_sub_explicit(&registry.live_threads, 1, memory_order_relaxed) - 1);]])

# The tick ends a heap that the next thread took meanwhile.
hak_mf2_mutant(ended_unseen pool/registry.c three_trim_begin "O5: heap 2 is unused and owns slabs"
[[if (heap->list == LIST_SETTLED && !keeps_cache(heap) &&]]
[[if (!keeps_cache(heap) &&]])

hak_mf2_mutant(shared_not_drained pool/registry.c three_shared
"O4: the queue of orphan 5 has 1 slabs that nobody will drain"
[[    remote_drain(shared); /* O4 */]]
[[]])

hak_mf2_mutant(orphan_not_locked pool/registry.c adopt_orphan "O2: slab 0 changes its owner without both locks"
[[memory_order_relaxed) != 0 && lock_try(&orphan->lock)) {]]
[[memory_order_relaxed) != 0) {]]
[[            adopted = adopt_from(heap, orphan, class);
            lock_release(&orphan->lock);]]
[[            adopted = adopt_from(heap, orphan, class);]])

# ---- fork.c ----

hak_mf2_mutant(fork_without_heaps front/fork.c fork_owner "O7: heap 2 is lost in the child"
[[heap = first_heap(); heap; heap = heap->next)]]
[[heap = first_heap(); heap && INNER == 0; heap = heap->next)]])

hak_mf2_mutant(fork_without_push front/fork.c fork_free
"H4: slab 0 has frees announced and is in no queue in the child"
[[    remote_reset_in_child(registry.heaps, !fork_interrupted);
]]
[[]])

hak_mf2_mutant(freer_named_late pool/remote.c fork_free
"H4: slab 0 has frees announced and is in no queue in the child"
[[    atomic_store_explicit(&freer->slab, slab, memory_order_relaxed);
]]
[[]]
[[        remote_push(slab, NULL);
]]
[[        atomic_store_explicit(&freer->slab, slab, memory_order_relaxed);
        remote_push(slab, NULL);
]])

hak_mf2_mutant(freer_named_short pool/remote.c fork_free
"H4: slab 0 has frees announced and is in no queue in the child"
[[        remote_push(slab, NULL);
]]
[[        atomic_store_explicit(&freer->slab, NULL, memory_order_relaxed);
        remote_push(slab, NULL);
]])

hak_mf2_mutant(child_pushes_queued pool/remote.c fork_free "H4: the queue of heap 2 has no end"
[[            if (at == slab)]]
[[            if (at == slab && heap == slab->owner->next)]])

# ---- Memory orders: each becomes the next weaker one ----

function(hak_mf2_order name file scenario failure at from to)
    string(REPLACE "${from}" "${to}" weaker "${at}")
    hak_mf2_mutant(order_${name} ${file} ${scenario} "${failure}" "${at}" "${weaker}")
endfunction()

set(at [[&slab->remote[word], mask, memory_order_release]])
hak_mf2_order(mark pool/remote.c take_early
    "race: thread 0 writes 0x[0-9a-f]+, and thread 1 wrote it" "${at}" release relaxed)

set(at [[&slab->remote_count, marked, memory_order_acq_rel]])
hak_mf2_order(announce_release pool/remote.c drain_each
    "race: thread 1 writes slab 0.pending_next, and thread 0 read it"
    "${at}" acq_rel release)
hak_mf2_order(announce_acquire pool/remote.c three_drain_each "H5: slab 0 is released with marks not collected"
    "${at}" acq_rel acquire)

set(at [[slab, memory_order_seq_cst,
                                                    memory_order_relaxed]])
hak_mf2_order(push pool/remote.c exit_last "O4: the queue of orphan 2 has 1 slabs that nobody will drain"
    "${at}" seq_cst acq_rel)
hak_mf2_order(push_relaxed pool/remote.c drain_last "race: thread 0 reads slab 0.pending_next, and thread 1 wrote it"
    "${at}" seq_cst acquire)

set(at [[&owner->state, memory_order_seq_cst]])
hak_mf2_order(state pool/remote.c exit_last "O4: the queue of orphan 2 has 1 slabs that nobody will drain"
    "${at}" seq_cst acquire)

set(at [[&slab->remote_count, 0, memory_order_acq_rel]])
hak_mf2_order(count_acquire pool/remote.c drain_each "race: thread 1 writes slab 0.pending_next, and thread 0 read it"
    "${at}" acq_rel acquire)
hak_mf2_order(count_release pool/remote.c three_drain_each "H5: slab 0 is released with marks not collected"
    "${at}" acq_rel release)

set(at [[&slab->remote[i], 0, memory_order_acquire]])
hak_mf2_order(collect pool/remote.c take_early "race: thread 0 writes 0x[0-9a-f]+, and thread 1 wrote it"
    "${at}" acquire relaxed)

set(at [[atomic_load_explicit(&heap->pending, memory_order_seq_cst)]])
hak_mf2_order(look pool/remote.c exit_last "O4: the queue of orphan 2 has 1 slabs that nobody will drain"
    "${at}" seq_cst acquire)

set(at [[&heap->pending, NULL, memory_order_acquire]])
hak_mf2_order(unlink pool/remote.c take_and_pass_on "race: thread 0 reads slab 1.pending_next, and thread 1 wrote it"
    "${at}" acquire relaxed)

hak_mf2_mutant(order_leave pool/registry.c exit_last "O4: the queue of orphan 2 has 1 slabs that nobody will drain"
[[    atomic_store(&heap->state, HEAP_ORPHAN);
    list_add(list_remove(heap), LIST_LEFT, true);]]
[[    atomic_store_explicit(&heap->state, HEAP_ORPHAN, memory_order_release);
    list_add(list_remove(heap), LIST_LEFT, true);]])

# ---- These need three threads: the scenarios of two find nothing ----

set(need_three ended_unseen shared_not_drained)
if(NOT CMAKE_BUILD_TYPE STREQUAL Debug) # where assertions read what two threads alone race for
    list(APPEND need_three order_announce_acquire order_count_release)
endif()
foreach(name IN LISTS need_three)
    add_test(NAME mf2_two_${name} COMMAND mf2_mutant_${name} --weak ${of_two_threads})
    set_tests_properties(mf2_two_${name} PROPERTIES LABELS stress TIMEOUT ${HAK_HANG_SECONDS})
endforeach()

# ---- The model's own reduction ----

hak_mf2_unsound(reads_commute_with_writes drain_each
[[(a->kind == STEP_READ && b->kind == STEP_READ)]]
[[(a->kind == STEP_READ || b->kind == STEP_READ)]])

hak_mf2_unsound(sleep_for_ever drain_each
[[thread != before->thread &&
            !are_dependent(&before->next[thread], step_of(depth - 1)))]]
[[thread != before->thread)]])

hak_mf2_unsound(try_waits adopt_orphan_locked
[[    if (step_of(later)->kind != STEP_TAKE)
        return true;]]
[[    if (step_of(later)->kind != STEP_TAKE && step_of(later)->kind != STEP_TRY)
        return true;]])
