/* What the functions generated for one system work on: a block of states, one lane of a vector each. */

#include <stdint.h>

#ifdef __AVX2__
enum { LANES = 32 };
#else
enum { LANES = 16 };
#endif

typedef int8_t lanes __attribute__((vector_size(LANES)));  /* numbers, or conditions as 0 and -1 */
typedef struct { uint64_t word[WORDS]; } state;
typedef struct { state after; uint64_t hash; uint32_t lane, action; } step;

/* The first violation of one check: depth -1 is none; of equally deep ones the smallest state's, then action's. */
typedef struct { int64_t depth; state at; uint32_t action; uint32_t unused; } violation;

typedef struct {
    lanes live;               /* which lanes hold a state */
    lanes x[VARIABLES];       /* the variables' values */
    lanes h[SHARED + 1];      /* values that several actions use */
    state at[LANES];
    int64_t depth;
    uint32_t observing;       /* whether to count rows and to judge steps */
    uint32_t count;
    step steps[LANES * ACTIONS];
    uint64_t taken[ROWS + 1];
    violation states[CHECKS + 1], moves[JUDGED + 1];
    int32_t astray;           /* the update that left its variable's range, or -1 */
    int32_t value;            /* to what */
} block;

/* One bit a lane. */
static inline __attribute__((always_inline)) uint32_t bits(lanes condition) {
    typedef char bytes __attribute__((vector_size(LANES), unused));
#if defined(__AVX2__)
    return (uint32_t)__builtin_ia32_pmovmskb256((bytes)condition);
#elif defined(__SSE2__)
    return (uint32_t)__builtin_ia32_pmovmskb128((bytes)condition);
#else
    uint64_t part[LANES / 8];
    uint32_t all = 0;
    __builtin_memcpy(part, &condition, LANES);
    for (int i = 0; i < LANES / 8; i++)
        all |= (uint32_t)(((part[i] & 0x0101010101010101u) * 0x0102040810204080u) >> 56) << (8 * i);
    return all;
#endif
}

static inline __attribute__((always_inline)) lanes pick(lanes condition, lanes then, lanes otherwise) {
    return (condition & then) | (~condition & otherwise);
}

static inline int before(const state *one, const state *other) {
    for (int w = 0; w < WORDS; w++)
        if (one->word[w] != other->word[w]) return one->word[w] < other->word[w];
    return 0;
}

static __attribute__((noinline, unused)) void note(block *b, violation *v, uint32_t broken, uint32_t action) {
    for (; broken; broken &= broken - 1) {
        const state *at = &b->at[__builtin_ctz(broken)];
        if (v->depth >= 0 && v->depth < b->depth) return;
        if (v->depth < 0 || before(at, &v->at)) {
            v->depth = b->depth;
            v->at = *at;
            v->action = action;
        }
    }
}

static __attribute__((noinline, unused)) void stray(block *b, int32_t update, uint32_t lane, lanes value) {
    if (b->astray < 0) {
        b->astray = update;
        b->value = value[lane];
    }
}
