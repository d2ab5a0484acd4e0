#include "profile/draw.h"

#include "os/file.h"
#include "os/os.h"

#define LN_2 0.69314718055994530942

/* Differs between forked children, which have the same state of os_random. */
static uint64_t seed_of_child;

/* Marsaglia's xorshift with Vigna's multiplier; the state is never 0. */
static uint64_t next_random(struct draw *draw)
{
    uint64_t x = draw->random;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    draw->random = x;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

/* ln(x) for a normal x > 0, to about 1e-6: x = m * 2^e, 1 <= m < 2; ln(m) = 2 artanh((m - 1) / (m + 1)) as a series. */
static double natural_log(double x)
{
    union {
        double value;
        uint64_t bits;
    } m = { .value = x };
    int exponent = (int)(m.bits >> 52) - 1023;
    double s, square;

    m.bits = (m.bits & ((UINT64_C(1) << 52) - 1)) | (UINT64_C(1023) << 52);
    s = (m.value - 1) / (m.value + 1);
    square = s * s;
    return exponent * LN_2 +
           2 * s * (1 + square * (1.0 / 3 + square * (1.0 / 5 + square * (1.0 / 7 + square * (1.0 / 9)))));
}

/* Returns the integer part of the draw, which is below a whole number iff the draw is. */
int64_t draw_countdown(struct draw *draw, uint64_t mean)
{
    double uniform = (double)((next_random(draw) >> 11) + 1) * (1.0 / 9007199254740992.0); /* above 0, at most 1 */

    if (HAK_UNLIKELY(mean == 1))
        return 0;
    return (int64_t)(-natural_log(uniform) * (double)mean);
}

void draw_begin(struct draw *draw, uint32_t generation, uint64_t mean)
{
    if (draw->random == 0)
        draw->random = (os_random() ^ seed_of_child) | 1;
    draw->generation = generation;
    draw->countdown = draw_countdown(draw, mean);
}

void draw_reset_in_child(void) { seed_of_child = os_process_id() * UINT64_C(0x9e3779b97f4a7c15); }

bool draw_one(struct draw *draw, uint64_t mean, size_t size)
{
    if (HAK_LIKELY(draw->countdown >= (int64_t)size)) {
        draw->countdown -= (int64_t)size;
        return false;
    }
    draw->countdown = draw_countdown(draw, mean);
    return true;
}

bool draw_part(struct draw *draw, uint64_t part, uint64_t whole)
{
    return (double)(next_random(draw) >> 11) * (double)whole < (double)part * 9007199254740992.0;
}

/* 1 - exp(-x) for x from 0 to 1/16: the first terms of the series. */
static double below_one_small(double x)
{
    return x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5))));
}

uint64_t draw_weight(uint64_t mean, size_t size)
{
    double x = (double)size / (double)mean, rest;
    unsigned halvings = 0;

    if (x > 64 || mean == 1)
        return WEIGHT_ONE;
    if (x <= 1.0 / 16)
        return (uint64_t)((double)WEIGHT_ONE / below_one_small(x) + 0.5);
    for (; x > 1.0 / 16; halvings++)
        x /= 2;
    rest = 1 - below_one_small(x); /* exp(-x), squared as often as x was halved */
    for (; halvings; halvings--)
        rest *= rest;
    return (uint64_t)((double)WEIGHT_ONE / (1 - rest) + 0.5);
}
