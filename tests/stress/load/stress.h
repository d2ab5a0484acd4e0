/*
 * The stress test's scenarios: threads pass blocks in every pattern that programs have, and the thread that frees a
 * block verifies its contents. stress.c runs the scenarios in rounds for a given time.
 */
#ifndef TESTS_STRESS_STRESS_H
#define TESTS_STRESS_STRESS_H

#include "block.h"

/* One round: starts its threads, joins them and leaves no block. Each round has its own `chance`. */
typedef void (*stress_round)(struct chance *chance);

/* stress_handoff.c */
void stress_churn(struct chance *chance);   /* threads end with live blocks, which others inherit */
void stress_orphans(struct chance *chance); /* blocks are freed by others while their owner exits */
void stress_phases(struct chance *chance);  /* mass allocation, then mass free by other threads */

/* stress_pass.c */
void stress_producers(struct chance *chance); /* producers allocate, consumers free */
void stress_ring(struct chance *chance);      /* messages go round a ring of threads, changing at each hop */
void stress_batches(struct chance *chance);   /* batches allocated here, regrouped and freed there */

/* stress_share.c */
void stress_heaps(struct chance *chance); /* first-class heaps used by many threads, destroyed while full */
void stress_idle(struct chance *chance);  /* threads idle while others free their blocks and allocate */

/* ---- Helpers ---- */

/* Mostly small, some to 1 MiB, few to 4 MiB. */
size_t stress_size(struct chance *chance);
void stress_allocate(struct block *block, struct chance *chance, size_t size);
void stress_free(struct block *block);

/* A bounded queue of blocks between threads. */
enum { CHANNEL_CAPACITY = 256 };
struct channel {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned first, count;
    unsigned senders; /* senders that have not ended */
    struct block blocks[CHANNEL_CAPACITY];
};
void channel_start(struct channel *channel, unsigned senders);
void channel_send(struct channel *channel, const struct block *block);
/* Returns false when all senders have ended and the channel is empty. */
bool channel_receive(struct channel *channel, struct block *block);
void channel_end_sender(struct channel *channel);
void channel_stop(struct channel *channel);

/* Runs `run` in `count` threads with arguments base, base + stride, ... Returns when all have ended. */
void stress_threads(unsigned count, void *(*run)(void *), void *base, size_t stride);

#endif
