/* Breadth-first search over the functions generated for one system.

   States lie in the order in which they were found, STRIDE bytes each, so that a level is a range of them.
   A table of 32-bit slots finds a state by its hash: a slot holds a state's number plus one, and above it as
   many bits of the hash as fit, so that few states that differ are compared. */

#ifdef __GNUC__
#pragma GCC optimize("O2")  /* the generated functions are many: they are compiled with less care */
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct {
    uint64_t count, limit, slots_size, generated, edges;
    uint8_t *states;
    uint32_t *slots;
    uint32_t id_bits, counts_edges;
    block *b;
    uint32_t (*targets)[ACTIONS];
    char *folder;
} engine;

/* Zeroes in a file that has no name any more: what the system takes from memory it can read again. */
static void *reserve_in(const char *folder, uint64_t bytes) {
    size_t length = strlen(folder) + sizeof "/hicache-fsm-XXXXXX";
    char *path = malloc(length);
    if (!path) return NULL;
    snprintf(path, length, "%s/hicache-fsm-XXXXXX", folder);
    int file = mkstemp(path);
    if (file >= 0) unlink(path);
    free(path);
    if (file < 0) return NULL;
    void *at = ftruncate(file, (off_t)bytes) ? MAP_FAILED
        : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? NULL : at;
}

/* Zeroes in memory, or in a file of `folder` if there is one. */
static void *reserve(const char *folder, uint64_t bytes) {
    if (folder) return reserve_in(folder, bytes);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#ifdef MAP_NORESERVE
    flags |= MAP_NORESERVE;
#endif
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    madvise(at, bytes, MADV_HUGEPAGE);
#endif
    return at;
}

static inline state load(const engine *e, uint64_t id) {
    state s;
    const uint8_t *from = e->states + id * STRIDE;
    for (int w = 0; w < WORDS; w++) {
        memcpy(&s.word[w], from + OFFSET[w], 8);
        s.word[w] &= MASK[w];
    }
    return s;
}

/* Writes past the state's end, where the next one will lie. */
static inline void store(engine *e, uint64_t id, const state *s) {
    uint8_t *to = e->states + id * STRIDE;
    for (int w = 0; w < WORDS; w++) memcpy(to + OFFSET[w], &s->word[w], 8);
}

static inline int same(const state *one, const state *other) {
    uint64_t differ = 0;
    for (int w = 0; w < WORDS; w++) differ |= one->word[w] ^ other->word[w];
    return !differ;
}

static inline uint64_t hash_of(const state *s) {
    uint64_t h = 0;
    for (int w = 0; w < WORDS; w++) {
        h = (h ^ s->word[w]) * 0x9E3779B97F4A7C15u;
        h = (h ^ (h >> 32)) * 0xBF58476D1CE4E5B9u;
        h ^= h >> 29;
    }
    return h;
}

static inline uint64_t home(const engine *e, uint64_t hash) { return ((hash >> 32) * e->slots_size) >> 32; }
static inline uint32_t tag(const engine *e, uint64_t hash) { return (uint32_t)hash << e->id_bits; }

/* The number of a state, or `count` and, in `at`, the slot for it if it is new. */
static inline uint64_t find(const engine *e, const state *s, uint64_t hash, uint64_t *at) {
    const uint32_t ids = (uint32_t)((1ull << e->id_bits) - 1), wanted = tag(e, hash);
    uint64_t place = home(e, hash);
    for (;;) {
        uint32_t slot = e->slots[place];
        if (!slot) {
            *at = place;
            return e->count;
        }
        if (!((slot ^ wanted) & ~ids)) {
            uint64_t id = (slot & ids) - 1;
            state known = load(e, id);
            if (same(&known, s)) return id;
        }
        if (++place == e->slots_size) place = 0;
    }
}

static inline void put(engine *e, uint64_t place, uint64_t hash, uint64_t id) {
    e->slots[place] = tag(e, hash) | (uint32_t)(id + 1);
}

/* Rebuilds the table from the states: the old one is freed before, so that both never exist at once. */
static int grow(engine *e, uint64_t size) {
    if (e->slots) munmap(e->slots, e->slots_size * 4);
    e->slots = reserve(e->folder, size * 4);
    if (!e->slots) return -1;
    e->slots_size = size;
    e->id_bits = 64 - (uint32_t)__builtin_clzll(size);
    enum { AHEAD = 32 };
    uint64_t hashes[AHEAD];
    for (uint64_t first = 0; first < e->count; first += AHEAD) {
        uint64_t n = e->count - first < AHEAD ? e->count - first : AHEAD;
        for (uint64_t i = 0; i < n; i++) {
            state s = load(e, first + i);
            hashes[i] = hash_of(&s);
            __builtin_prefetch(&e->slots[home(e, hashes[i])], 1);
        }
        for (uint64_t i = 0; i < n; i++) {
            uint64_t place = home(e, hashes[i]);
            while (e->slots[place])
                if (++place == e->slots_size) place = 0;
            put(e, place, hashes[i], first + i);
        }
    }
    return 0;
}

static int make_room(engine *e) {
    uint64_t most = e->count + LANES * ACTIONS, size = e->slots_size;
    if (most * 5 < size * 4) return 0;
    return grow(e, size < (1u << 18) ? size * 2 : size + size / 4);
}

/* Fills the block with up to LANES states from number `first` on, and computes their values. */
static uint32_t fill(engine *e, uint64_t first, uint64_t last) {
    block *b = e->b;
    uint32_t n = last - first < LANES ? (uint32_t)(last - first) : LANES;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        b->at[lane] = load(e, first + (lane < n ? lane : 0));
        b->live[lane] = lane < n ? -1 : 0;
    }
    b->count = 0;
    unpack(b);
    shared(b);
    return n;
}

/* Computes the steps' hashes, and fetches what looking them up will need. */
static void look_ahead(engine *e) {
    block *b = e->b;
    for (uint32_t i = 0; i < b->count; i++) {
        b->steps[i].hash = hash_of(&b->steps[i].after);
        __builtin_prefetch(&e->slots[home(e, b->steps[i].hash)]);
    }
    const uint32_t ids = (uint32_t)((1ull << e->id_bits) - 1);
    for (uint32_t i = 0; i < b->count; i++) {
        uint32_t slot = e->slots[home(e, b->steps[i].hash)];
        if (slot) __builtin_prefetch(e->states + (uint64_t)((slot & ids) - 1) * STRIDE);
    }
}

/* `folder` is where states and the table go, or NULL for memory. */
engine *engine_new(const uint64_t *initial, uint64_t limit, uint32_t counts_edges, const char *folder) {
    engine *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    e->folder = folder ? strdup(folder) : NULL;
    e->limit = limit;
    e->counts_edges = counts_edges;
    e->states = reserve(e->folder, (limit + LANES * ACTIONS) * STRIDE + 8);
    e->b = aligned_alloc(64, (sizeof(block) + 63) / 64 * 64);
    e->targets = malloc(sizeof(uint32_t) * ACTIONS * LANES);
    if (!e->states || !e->b || !e->targets || grow(e, 1 << 14)) return NULL;
    memset(e->b, 0, sizeof *e->b);
    for (int i = 0; i <= CHECKS; i++) e->b->states[i].depth = -1;
    for (int i = 0; i <= JUDGED; i++) e->b->moves[i].depth = -1;
    e->b->astray = -1;
    state s;
    memcpy(s.word, initial, sizeof s.word);
    uint64_t hash = hash_of(&s);
    store(e, 0, &s);
    put(e, home(e, hash), hash, 0);
    e->count = 1;
    return e;
}

void engine_free(engine *e) {
    munmap(e->states, (e->limit + LANES * ACTIONS) * STRIDE + 8);
    if (e->slots) munmap(e->slots, e->slots_size * 4);
    free(e->folder);
    free(e->targets);
    free(e->b);
    free(e);
}

uint64_t engine_bytes(const engine *e) { return e->count * STRIDE + e->slots_size * 4; }
uint64_t engine_count(const engine *e) { return e->count; }
uint64_t engine_generated(const engine *e) { return e->generated; }
uint64_t engine_edges(const engine *e) { return e->edges; }
const block *engine_block(const engine *e) { return e->b; }
const uint64_t *engine_taken(const engine *e) { return e->b->taken; }
const violation *engine_states(const engine *e) { return e->b->states; }
const violation *engine_moves(const engine *e) { return e->b->moves; }
int32_t engine_astray(const engine *e, int32_t *value) {
    *value = e->b->value;
    return e->b->astray;
}
void engine_state(const engine *e, uint64_t id, uint64_t *words) {
    state s = load(e, id);
    memcpy(words, s.word, sizeof s.word);
}

static uint64_t insert(engine *e, const step *each) {
    uint64_t place, id = find(e, &each->after, each->hash, &place);
    if (id == e->count) {
        put(e, place, each->hash, id);
        store(e, id, &each->after);
        e->count++;
    }
    return id;
}

static void count_edges(engine *e, const uint32_t *ids) {
    uint32_t found[LANES] = {0};
    const block *b = e->b;
    for (uint32_t i = 0; i < b->count; i++) {
        uint32_t lane = b->steps[i].lane, *known = e->targets[lane], n = found[lane], repeated = 0;
        for (uint32_t k = 0; k < n; k++) repeated |= known[k] == ids[i];
        known[n] = ids[i];
        found[lane] = n + !repeated;
    }
    for (uint32_t lane = 0; lane < LANES; lane++) e->edges += found[lane];
}

/* Expands the states first..last-1, `depth` steps from the start.
   0 if all went well, 1 if the limit was hit, 2 if an update left its range, -1 if memory ran out. */
int engine_expand(engine *e, uint64_t first, uint64_t last, int64_t depth) {
    block *b = e->b;
    uint32_t *ids = malloc(sizeof(uint32_t) * LANES * ACTIONS);
    int outcome = ids ? 0 : -1;
    b->depth = depth;
    b->observing = 1;
    for (; first < last && !outcome; first += LANES) {
        if (e->count > e->limit) outcome = 1;
        else if (make_room(e)) outcome = -1;
        else {
            fill(e, first, last);
            judge(b);
            steps(b, NULL);
            look_ahead(e);
            for (uint32_t i = 0; i < b->count; i++) ids[i] = (uint32_t)insert(e, &b->steps[i]);
            e->generated += b->count;
            if (e->counts_edges) count_edges(e, ids);
            if (b->astray >= 0) outcome = 2;
        }
    }
    free(ids);
    return outcome;
}

/* For each wanted state the smallest one of first..last-1 that steps to it, and the smallest action of those. */
void engine_parents(engine *e, uint64_t first, uint64_t last, const state *wanted, uint32_t n,
                    state *parents, int32_t *action) {
    block *b = e->b;
    b->observing = 0;
    for (uint32_t k = 0; k < n; k++) action[k] = -1;
    for (; first < last; first += LANES) {
        fill(e, first, last);
        steps(b, NULL);
        for (uint32_t i = 0; i < b->count; i++)
            for (uint32_t k = 0; k < n; k++) {
                const step *each = &b->steps[i];
                if (same(&each->after, &wanted[k]) &&
                    (action[k] < 0 || before(&b->at[each->lane], &parents[k]))) {
                    parents[k] = b->at[each->lane];
                    action[k] = (int32_t)each->action;
                }
            }
    }
}

/* One round backwards over all states, adding to each those of `wanted` that an allowed step leads to.
   How many states gained something. */
static uint64_t spread(engine *e, goals *good, const goals *allowed, const uint8_t *useful, goals wanted) {
    block *b = e->b;
    uint64_t gained = 0;
    for (uint64_t last = e->count; last;) {
        uint64_t first = (last - 1) / LANES * LANES;
        goals all = wanted;
        for (uint64_t id = first; id < last; id++) all &= good[id];
        if (all != wanted) {
            fill(e, first, last);
            for (uint32_t lane = 0; first + lane < last; lane++)
                if (good[first + lane] == wanted) b->live[lane] = 0;
            steps(b, useful);
            look_ahead(e);
            for (uint32_t i = 0; i < b->count; i++) {
                const step *each = &b->steps[i];
                goals *here = &good[first + each->lane], missing = (goals)(allowed[each->action] & ~*here);
                uint64_t place;
                if (!missing) continue;
                goals news = good[find(e, &each->after, each->hash, &place)] & missing;
                gained += news != 0;
                *here |= news;
            }
        }
        last = first;
    }
    return gained;
}

/* For each goal the number of a state, the smallest of the first level with one, that cannot reach it, or -1.
   `allowed` are, for each action, the goals whose paths may take it.  -1 if memory ran out, else the rounds. */
int engine_goals(engine *e, const goals *allowed, int64_t *lost, const uint64_t *starts, uint32_t levels) {
    const goals wanted = (goals)((1ull << GOALS) - 1);
    goals *good = reserve(e->folder, e->count * sizeof(goals)), starting[LANES];
    uint8_t useful[ACTIONS];
    int rounds = 0;
    if (!good) return -1;
    for (int i = 0; i < ACTIONS; i++) useful[i] = allowed[i] != 0;
    e->b->observing = 0;
    for (uint64_t first = 0; first < e->count; first += LANES) {
        goals reached[LANES];
        uint32_t n = fill(e, first, e->count);
        aims(e->b, starting, reached);
        memcpy(&good[first], reached, n * sizeof(goals));
    }
    do rounds++;
    while (spread(e, good, allowed, useful, wanted));
    for (int g = 0; g < GOALS; g++) lost[g] = -1;
    goals open = wanted;
    for (uint32_t level = 0; level < levels && open; level++) {
        goals closed = 0;
        for (uint64_t first = starts[level]; first < starts[level + 1]; first += LANES) {
            uint32_t n = fill(e, first, starts[level + 1]);
            aims(e->b, starting, NULL);
            for (uint32_t lane = 0; lane < n; lane++)
                for (goals left = open & starting[lane] & ~good[first + lane]; left; left &= left - 1) {
                    int g = __builtin_ctzll(left);
                    state held = lost[g] < 0 ? e->b->at[lane] : load(e, (uint64_t)lost[g]);
                    if (lost[g] < 0 || before(&e->b->at[lane], &held)) lost[g] = (int64_t)(first + lane);
                    closed |= (goals)1 << g;
                }
        }
        open &= ~closed;
    }
    munmap(good, e->count * sizeof(goals));
    return rounds;
}
