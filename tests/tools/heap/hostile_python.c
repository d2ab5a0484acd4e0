/*
 * Looks like CPython to the profile, with senseless structures: pointers to nowhere, to themselves and to each other,
 * and random numbers. Arguments: PY_VERSION_HEX, bytes between samples. It allocates while a thread changes them.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

__attribute__((weak)) int hak_profile_start(size_t rate);

#define EXPORTED __attribute__((visibility("default"), used))
#define ROUNDS 1500

EXPORTED uint64_t _PyRuntime[4096];
EXPORTED uint64_t PyCode_Type[64], PyType_Type[64];
EXPORTED unsigned long Py_Version;

enum { HELD = 512 };
static void *held[HELD];
static uint64_t *blob; /* most pointers lead into it; memory that cannot be read follows it */
enum { WORDS = 8192 };
static uint64_t state = 88172645463325252u;

static uint64_t chance(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t word(void)
{
    switch (chance() % 10) {
    case 0:
        return 0;
    case 1:
        return chance();
    case 2:
        return chance() % 256;
    case 3:
        return (uintptr_t)PyCode_Type;
    case 4:
        return (uintptr_t)(blob + WORDS) - chance() % 64; /* its end */
    case 5:
        return (uintptr_t)pthread_self();
    default:
        return (uintptr_t)(blob + chance() % WORDS);
    }
}

static void scramble(void)
{
    for (unsigned i = 4; i < 4096; i++)
        _PyRuntime[i] = _PyRuntime[0] && i < 96 ? chance() % 128 : word();
    for (unsigned i = 0; i < WORDS; i++)
        blob[i] = word();
    /* In each layout, a thread state that is the caller's, so that the profile walks frames. */
    for (unsigned place = 0; place < 24; place++)
        if (chance() % 2)
            blob[256 * (chance() % 16) + place] = (uintptr_t)pthread_self();
}

/* The first links are sound: an interpreter, and the caller's thread with random frames. */
static void half_sound(void)
{
    uint64_t *interpreter = blob, *thread = blob + 1024, *holder = blob + 2048;

    memset(interpreter, 0, 128);
    for (unsigned place = 4; place < 8; place++)
        _PyRuntime[place] = (uintptr_t)interpreter;
    for (unsigned place = 1; place < 16; place++)
        interpreter[place] = (uintptr_t)thread;
    for (unsigned place = 3; place < 64; place++)
        thread[place] = place == 3 || place == 7 ? (uintptr_t)holder : (uintptr_t)pthread_self();
    thread[0] = thread[1] = 0;
    thread[2] = (uintptr_t)interpreter;
    holder[0] = holder[1] = (uintptr_t)(blob + 3000 + chance() % 4000);
    /* Code objects of the right type, some of whose fields are such objects. */
    for (unsigned i = 3000; i < WORDS; i += 1 + chance() % 8)
        blob[i] = (uintptr_t)PyCode_Type;
}

/* The table of offsets that interpreters have since 3.13, with the offsets of 3.12. */
static void fill_table(unsigned minor)
{
    static const unsigned char places[][23] = {
        { 5, 8, 9, 20, 21, 22, 23, 24, 29, 30, 31, 33, 35, 37, 38, 39, 43, 45, 65, 66, 68, 69, 70 },
        { 5, 8, 9, 23, 24, 25, 26, 27, 32, 33, 34, 36, 40, 42, 43, 44, 48, 51, 75, 76, 78, 79, 80 },
    };
    static const unsigned char offsets[] = { 32,  0,   16,  0,  8,   16, 56, 176, 8,  0,  56, 70,
                                             112, 128, 136, 68, 192, 8,  16, 32,  32, 16, 40 };

    for (unsigned i = 0; i < sizeof offsets; i++)
        _PyRuntime[places[minor == 13 ? 0 : 1][i]] = offsets[i];
}

static void *shake(void *stop)
{
    while (!*(volatile int *)stop)
        blob[3000 + rand() % 5000] = (uintptr_t)(blob + rand() % WORDS);
    return NULL;
}

EXPORTED __attribute__((noinline)) void *_PyEval_EvalFrameDefault(size_t size)
{
    void *block = malloc(size);
    memset(block, 1, 1);
    return block;
}

int main(int argc, char **argv)
{
    size_t bytes = WORDS * sizeof *blob;
    pthread_t thread;
    int stop = 0;

    (void)argc;
    Py_Version = strtoul(argv[1], NULL, 16);
    if (Py_Version >> 16 >= 0x30d) {
        memcpy(_PyRuntime, "xdebugpy", 8);
        _PyRuntime[1] = Py_Version;
        fill_table(Py_Version >> 16 & 255);
        Py_Version = 0;
    }
    blob = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect((char *)blob + bytes, bytes, PROT_NONE);
    hak_profile_start(strtoul(argv[2], NULL, 10)); /* looks for an interpreter again */
    pthread_create(&thread, NULL, shake, &stop);
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (round % 4 == 0)
            scramble();
        if (round % 4 < 3)
            half_sound();
        for (unsigned i = 0; i < 20; i++) {
            void **place = &held[(20 * round + i) % HELD];
            free(*place);
            *place = _PyEval_EvalFrameDefault(5000 + 8 * i);
        }
    }
    stop = 1;
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
