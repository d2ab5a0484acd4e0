/*
 * Message ring: THREADS threads in a ring. Each thread allocates MESSAGES messages of 64-1024 B. A message is passed to
 * the next thread HOPS times; each thread reads it, and the last one frees it and tells its origin. A thread has at
 * most WINDOW messages under way, which bounds memory.
 */
#include <pthread.h>

#include "common.h"

enum { WINDOW = 256, SIZE_LEAST = 64, SIZE_MOST = 1024, LINE = 64 };

struct message {
    struct message *next;
    uint64_t key;
    uint32_t size, hops_left, origin;
};

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct message *messages;
    unsigned credits;
};

struct worker {
    struct mailbox box;
    unsigned number;
    uint64_t random;
    uint64_t bytes;
} __attribute__((aligned(128)));

static struct worker workers[BENCH_THREADS_MOST];
static unsigned threads;
static uint32_t hops;
static uint64_t messages_each;

/* Behind the header, the last word of every cache line holds the key. */
static uint64_t *key_at(struct message *message, uint32_t line)
{
    return (uint64_t *)(void *)((char *)message + (size_t)line * LINE + LINE - sizeof(uint64_t));
}

static struct message *message_new(struct worker *worker)
{
    uint64_t random = bench_random(&worker->random);
    uint32_t size = SIZE_LEAST + bench_scale((uint32_t)random, SIZE_MOST - SIZE_LEAST + 1);
    struct message *message = malloc(size);
    if (message == NULL)
        bench_fail("malloc(%u) failed", size);
    *message = (struct message){ .key = random, .size = size, .hops_left = hops, .origin = worker->number };
    for (uint32_t line = 0; line < size / LINE; line++)
        *key_at(message, line) = random ^ line;
    worker->bytes += size;
    return message;
}

static void message_check(struct message *message, unsigned reader)
{
    /* The message's origin is so many places behind. */
    bool intact = (message->origin + (hops - message->hops_left)) % threads == reader && message->size >= SIZE_LEAST &&
                  message->size <= SIZE_MOST;
    for (uint32_t line = 0; intact && line < message->size / LINE; line++)
        intact = *key_at(message, line) == (message->key ^ line);
    if (!intact)
        bench_fail("message %p lost its contents", (void *)message);
}

/* Puts a list of messages, and the number of freed ones, into a mailbox. */
static void deliver(struct mailbox *box, struct message *first, struct message *last, unsigned credits)
{
    pthread_mutex_lock(&box->lock);
    if (first != NULL) {
        last->next = box->messages;
        box->messages = first;
    }
    box->credits += credits;
    pthread_cond_signal(&box->filled);
    pthread_mutex_unlock(&box->lock);
}

static void worker_main(void *argument)
{
    struct worker *worker = argument;
    struct mailbox *next = &workers[(worker->number + 1) % threads].box;
    struct mailbox *origin = &workers[(worker->number + threads - hops % threads) % threads].box;
    uint64_t to_send = messages_each;
    uint64_t to_receive = messages_each * hops;
    unsigned window = WINDOW;

    while (to_send > 0 || to_receive > 0) {
        pthread_mutex_lock(&worker->box.lock);
        window += worker->box.credits;
        worker->box.credits = 0;
        while (worker->box.messages == NULL && (to_send == 0 || window == 0)) {
            pthread_cond_wait(&worker->box.filled, &worker->box.lock);
            window += worker->box.credits;
            worker->box.credits = 0;
        }
        struct message *received = worker->box.messages;
        worker->box.messages = NULL;
        pthread_mutex_unlock(&worker->box.lock);

        struct message *first = NULL;
        struct message *last = NULL;
        unsigned freed = 0;
        while (received != NULL) {
            struct message *message = received;
            received = message->next;
            message->hops_left--;
            message_check(message, worker->number);
            to_receive--;
            if (message->hops_left == 0) {
                free(message);
                freed++;
                continue;
            }
            message->next = first;
            first = message;
            last = last == NULL ? message : last;
        }
        for (; to_send > 0 && window > 0; to_send--, window--) {
            struct message *message = message_new(worker);
            message->next = first;
            first = message;
            last = last == NULL ? message : last;
        }
        if (first != NULL)
            deliver(next, first, last, 0);
        if (freed > 0)
            deliver(origin, NULL, NULL, freed);
    }
}

int main(int argc, char **argv)
{
    bench_usage(argc, argv, 4,
                "[THREADS] [MESSAGES] [HOPS] [SEED]\n"
                "  MESSAGES of 64-1024 B a thread, freed after HOPS hops round a ring (default 4 500000 3 42)");
    threads = (unsigned)bench_argument(argc, argv, 1, "THREADS", 4, 1, BENCH_THREADS_MOST);
    messages_each = bench_argument(argc, argv, 2, "MESSAGES", 500000, 0, UINT64_C(1) << 40);
    hops = (uint32_t)bench_argument(argc, argv, 3, "HOPS", 3, 1, 1 << 20);
    uint64_t seed = bench_argument(argc, argv, 4, "SEED", 42, 0, UINT64_MAX);
    uint64_t bytes = 0;
    struct bench_run bench;

    for (unsigned i = 0; i < threads; i++) {
        workers[i].number = i;
        workers[i].random = bench_seed(seed, i);
        pthread_mutex_init(&workers[i].box.lock, NULL);
        pthread_cond_init(&workers[i].box.filled, NULL);
    }
    bench_begin_threads(&bench, "ring", threads, worker_main, workers, sizeof workers[0]);
    bench_join_threads();
    bench_end(&bench, (uint64_t)2 * threads * messages_each);
    for (unsigned i = 0; i < threads; i++)
        bytes += workers[i].bytes;
    bench_extra(&bench, "bytes", bytes);
    bench_report(&bench);
    return 0;
}
