/* Evaluating a circuit, a few rows at a time, so that the values of all its nodes stay in cache: nothing but the
 * weights, the roots and their derivatives goes through memory.
 *
 * A node is a sum of products of earlier ones. Sums are taken in plain double precision, whatever the type of the
 * weights: one multiplication or addition an edge. Weights that are logarithms are raised first; a row whose numbers
 * may have left the range of a double (see `trusted`) is evaluated again in log space. What happens to a row does not
 * depend on other rows, on the size of the block or on the number of threads.
 *
 * Nothing here depends on -ffast-math, and the state of the processor is left alone: subnormal numbers stay what they
 * are. */

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 8
#define MOST 4       /* vectors of a node in a block */
#define ZERO (-1e24)  /* logarithms below stand for that of 0 */
#define FLOOR (-1e30) /* and this for the logarithm of 0 itself, of which many can be added up */
#define SAFE 600.0    /* e^600 and e^-600 are far from the ends of the range of a double */
#define MARGIN 621.0  /* 2^-896: what is lost below the range of a double, 2^-1075, is 2^-179 of that */
#define FAR 1e12      /* plain numbers within this and its inverse are far from 0 and from infinity */
#define INLINE static inline __attribute__((always_inline))

typedef double vec __attribute__((vector_size(8 * LANES)));
typedef int64_t ints __attribute__((vector_size(8 * LANES)));

enum { LOGS, PLAIN, BEST };

typedef struct {
    int64_t literals, nodes, derived; /* the last ones derived from the root: the derivatives of the literals */
    int64_t longest;                  /* the most factors of a product */
    const int32_t *sums;              /* node i adds up the products sums[i] to sums[i + 1] */
    const int32_t *products;          /* product t multiplies factors[products[t]] to factors[products[t + 1]] */
    const int32_t *factors;
    const int32_t *models;            /* how many worlds a node holds, or many */
    double bound;                     /* log of the number of models, and of edges */
} Program;

typedef struct {
    const Program *program;
    int mode, best, single, width; /* how many are asked for, where it is the best */
    int64_t rows, to;
    const void *weights;
    int64_t across, along; /* steps in memory from a literal, and from a row, to the next */
    void *roots, *slopes;
    int64_t *worlds; /* of the best, with the values of so many variables: a literal says that a variable has a value */
    int64_t variables;
    const int32_t *variable, *value;
    atomic_llong next; /* the first row that nobody has taken yet */
    atomic_int failed;
} Task;

INLINE vec all(double x) { return (vec){x, x, x, x, x, x, x, x}; }
INLINE vec pick(ints mask, vec a, vec b) { return (vec)((mask & (ints)a) | (~mask & (ints)b)); }
INLINE uint64_t packed(ints mask) { /* a byte for each lane */
    typedef int8_t bytes __attribute__((vector_size(LANES)));
    return (uint64_t)__builtin_convertvector(mask, bytes);
}
INLINE ints unpacked(uint64_t lanes) {
    typedef int8_t bytes __attribute__((vector_size(LANES)));
    return __builtin_convertvector((bytes)lanes, ints);
}
INLINE vec larger(vec a, vec b) { return pick(a > b, a, b); }
INLINE vec smaller(vec a, vec b) { return pick(a < b, a, b); }

/* e^x for x at most 709; 0 below -708. */
INLINE vec raised(vec x) {
    const vec shift = all(6755399441055744.0); /* 1.5 * 2^52: adding it rounds, and the low bits are the integer */
    vec y = larger(x, all(-708.0));
    vec shifted = y * all(1.4426950408889634) + shift, n = shifted - shift;
    vec r = (y - n * all(6.93145751953125e-1)) - n * all(1.42860682030941723212e-6);
    vec p = all(1.0 / 6227020800.0);
    p = p * r + all(1.0 / 479001600.0);
    p = p * r + all(1.0 / 39916800.0);
    p = p * r + all(1.0 / 3628800.0);
    p = p * r + all(1.0 / 362880.0);
    p = p * r + all(1.0 / 40320.0);
    p = p * r + all(1.0 / 5040.0);
    p = p * r + all(1.0 / 720.0);
    p = p * r + all(1.0 / 120.0);
    p = p * r + all(1.0 / 24.0);
    p = p * r + all(1.0 / 6.0);
    p = p * r + all(0.5);
    p = p * r + all(1.0);
    p = p * r + all(1.0);
    vec scale = (vec)(((ints)shifted + 1023) << 52);
    return (vec)((x >= all(-708.0)) & (ints)(p * scale));
}

/* log x for numbers that are not subnormal; -inf for 0. */
INLINE vec logarithm(vec x) {
    ints bits = (ints)x, e = (bits - 0x3fe6a09e667f3bcdLL) >> 52;
    vec m = (vec)(bits - (e << 52));
    vec t = (m - all(1.0)) / (m + all(1.0)), s = t * t;
    vec p = all(1.0 / 23.0);
    p = p * s + all(1.0 / 21.0);
    p = p * s + all(1.0 / 19.0);
    p = p * s + all(1.0 / 17.0);
    p = p * s + all(1.0 / 15.0);
    p = p * s + all(1.0 / 13.0);
    p = p * s + all(1.0 / 11.0);
    p = p * s + all(1.0 / 9.0);
    p = p * s + all(1.0 / 7.0);
    p = p * s + all(1.0 / 5.0);
    p = p * s + all(1.0 / 3.0);
    vec high = __builtin_convertvector(e, vec);
    /* the logarithm of 2 in two parts: the first has few digits, so that its product is exact */
    vec found = high * all(6.93145751953125e-1) + (high * all(1.42860682030941723212e-6) + (t + t) * (all(1.0) + s * p));
    return pick(x > all(0.0), found, all(-INFINITY));
}

void exponentials(int64_t n, const double *x, double *out) {
    for (int64_t i = 0; i < n; i += LANES) *(vec *)(out + i) = raised(*(const vec *)(x + i));
}

void logarithms(int64_t n, const double *x, double *out) {
    for (int64_t i = 0; i < n; i += LANES) *(vec *)(out + i) = logarithm(*(const vec *)(x + i));
}

/* ---- sums of products: plain numbers ---- */

INLINE void upward(const Program *p, const int w, int64_t nodes, vec *restrict v) {
    for (int64_t i = 0; i < nodes; i++) {
        vec sum[MOST];
        for (int j = 0; j < w; j++) sum[j] = all(0.0);
        for (int32_t t = p->sums[i]; t < p->sums[i + 1]; t++) {
            const int32_t *f = p->factors + p->products[t], *end = p->factors + p->products[t + 1];
            if (end == f + 2) {
                const vec *a = v + (int64_t)f[0] * w, *b = v + (int64_t)f[1] * w;
                for (int j = 0; j < w; j++) sum[j] += a[j] * b[j];
            } else if (end == f) {
                for (int j = 0; j < w; j++) sum[j] += all(1.0);
            } else {
                vec product[MOST];
                for (int j = 0; j < w; j++) product[j] = v[(int64_t)*f * w + j];
                while (++f < end)
                    for (int j = 0; j < w; j++) product[j] *= v[(int64_t)*f * w + j];
                for (int j = 0; j < w; j++) sum[j] += product[j];
            }
        }
        for (int j = 0; j < w; j++) v[(p->literals + i) * w + j] = sum[j];
    }
}

/* Derivatives with respect to plain numbers, some of which are 0. That with respect to a factor is the product of the
 * others: of those before it, times those after it. */
INLINE void downward(const Program *p, const int w, const vec *restrict v, vec *restrict s, vec *restrict after) {
    for (int64_t i = p->nodes - 1; i >= 0; i--) {
        vec g[MOST];
        for (int j = 0; j < w; j++) g[j] = s[(p->literals + i) * w + j];
        for (int32_t t = p->sums[i]; t < p->sums[i + 1]; t++) {
            const int32_t first = p->products[t], count = p->products[t + 1] - first;
            const int32_t *f = p->factors + first;
            vec before[MOST];
            for (int j = 0; j < w; j++) before[j] = g[j];
            for (int j = 0; j < w; j++) after[(count > 0 ? count - 1 : 0) * w + j] = all(1.0);
            for (int32_t c = count - 1; c > 0; c--)
                for (int j = 0; j < w; j++) after[(c - 1) * w + j] = after[c * w + j] * v[(int64_t)f[c] * w + j];
            for (int32_t c = 0; c < count; c++) {
                const int64_t x = (int64_t)f[c] * w;
                for (int j = 0; j < w; j++) s[x + j] += before[j] * after[c * w + j], before[j] *= v[x + j];
            }
        }
    }
}

/* ---- sums of products: logarithms ---- */

INLINE void total(const Program *p, const int w, int32_t t, const vec *restrict v, vec *restrict out) {
    for (int j = 0; j < w; j++) out[j] = all(0.0);
    for (int32_t f = p->products[t]; f < p->products[t + 1]; f++)
        for (int j = 0; j < w; j++) out[j] += v[(int64_t)p->factors[f] * w + j];
}

INLINE void log_upward(const Program *p, const int w, const int best, vec *restrict v) {
    for (int64_t i = 0; i < p->nodes; i++) {
        vec top[MOST], sum[MOST], term[MOST];
        const int32_t first = p->sums[i], last = p->sums[i + 1];
        for (int j = 0; j < w; j++) top[j] = all(FLOOR);
        for (int32_t t = first; t < last; t++) {
            total(p, w, t, v, term);
            for (int j = 0; j < w; j++) top[j] = t == first ? term[j] : larger(term[j], top[j]);
        }
        if (!best && last > first + 1) {
            for (int j = 0; j < w; j++) sum[j] = all(0.0);
            for (int32_t t = first; t < last; t++) {
                total(p, w, t, v, term);
                for (int j = 0; j < w; j++) sum[j] += raised(term[j] - top[j]);
            }
            for (int j = 0; j < w; j++) top[j] += logarithm(sum[j]);
        }
        for (int j = 0; j < w; j++) v[(p->literals + i) * w + j] = top[j];
    }
}

INLINE void log_downward(const Program *p, const int w, const vec *restrict v, vec *restrict s) {
    for (int64_t i = p->nodes - 1; i >= 0; i--) {
        const vec *own = v + (p->literals + i) * w;
        for (int32_t t = p->sums[i]; t < p->sums[i + 1]; t++) {
            vec share[MOST];
            total(p, w, t, v, share);
            for (int j = 0; j < w; j++) share[j] = s[(p->literals + i) * w + j] * raised(share[j] - own[j]);
            for (int32_t f = p->products[t]; f < p->products[t + 1]; f++)
                for (int j = 0; j < w; j++) s[(int64_t)p->factors[f] * w + j] += share[j];
        }
    }
}

/* ---- rows, and room for them ---- */

typedef struct {
    vec *values, *slopes, *after;
    int32_t *place, *length; /* of the lists of the best */
    uint64_t *on;
    vec *wanted;
    ints *skip;
} Room;

INLINE void load(const Task *t, const int w, int64_t literal, int64_t begin, int64_t n, vec *restrict out) {
    const int64_t from = literal * t->across + begin * t->along;
    if (n == w * LANES && t->along == 1) {
        if (t->single) {
            typedef float half __attribute__((vector_size(4 * LANES)));
            half x;
            for (int j = 0; j < w; j++) {
                memcpy(&x, (const float *)t->weights + from + j * LANES, sizeof x);
                out[j] = __builtin_convertvector(x, vec);
            }
        } else {
            memcpy(out, (const double *)t->weights + from, sizeof(vec) * w);
        }
        return;
    }
    double *lanes = (double *)out; /* lanes without a row weigh 0, which is no trouble in any mode */
    for (int64_t r = 0; r < w * LANES; r++) lanes[r] = 0.0;
    for (int64_t r = 0; r < n; r++)
        lanes[r] = t->single ? (double)((const float *)t->weights)[from + r * t->along]
                             : ((const double *)t->weights)[from + r * t->along];
}

INLINE void store(const Task *t, void *array, int64_t index, int64_t begin, int64_t n, const vec *x) {
    const double *lanes = (const double *)x;
    const int64_t from = index * t->rows + begin;
    if (t->single)
        for (int64_t r = 0; r < n; r++) ((float *)array)[from + r] = (float)lanes[r];
    else
        memcpy((double *)array + from, lanes, sizeof(double) * n);
}

/* ---- the best worlds ---- */

/* A node has a list of its best sums, in order: `length[node]` of them, from `place[node]` on. The factors of a product
 * have one each, but for two at most. */
typedef struct {
    vec base[MOST];
    const vec *lists[2];
    int32_t lengths[2], nodes[2];
} Term;

INLINE void gather(const Program *p, const int w, const Room *room, int32_t t, Term *term) {
    static const vec nothing[MOST];
    for (int side = 0; side < 2; side++) term->lists[side] = nothing, term->lengths[side] = 1, term->nodes[side] = -1;
    for (int j = 0; j < w; j++) term->base[j] = all(0.0);
    for (int32_t f = p->products[t], side = 0; f < p->products[t + 1]; f++) {
        const int32_t node = p->factors[f];
        const vec *list = room->values + (int64_t)room->place[node] * w;
        if (room->length[node] > 1 && side < 2) {
            term->nodes[side] = node, term->lists[side] = list, term->lengths[side++] = room->length[node];
            continue;
        }
        for (int j = 0; j < w; j++) term->base[j] += list[j];
    }
}

INLINE vec candidate(const int w, const Term *term, int32_t a, int32_t b, int j) {
    return (term->base[j] + term->lists[0][(int64_t)a * w + j]) + term->lists[1][(int64_t)b * w + j];
}

/* Every sum of the best k is of an a-th and a b-th best with a b <= k. */
#define EACH_CANDIDATE(term, k)                                                                                      \
    for (int32_t a = 0; a < (k) && (a == 0 || a < (term).lengths[0]); a++)                                           \
        for (int32_t b = 0; (a + 1) * (b + 1) <= (k) && (b == 0 || b < (term).lengths[1]); b++)

INLINE void best_upward(const Program *p, const int w, const int k, const Room *room) {
    for (int64_t i = 0; i < p->nodes; i++) {
        vec *list = room->values + (int64_t)room->place[p->literals + i] * w;
        const int32_t length = room->length[p->literals + i];
        for (int64_t q = 0; q < (int64_t)length * w; q++) list[q] = all(-INFINITY);
        for (int32_t t = p->sums[i]; t < p->sums[i + 1]; t++) {
            Term term;
            gather(p, w, room, t, &term);
            EACH_CANDIDATE(term, k) {
                vec x[MOST];
                for (int j = 0; j < w; j++) x[j] = candidate(w, &term, a, b, j);
                /* those with smaller a and b are on the list already, and no worse */
                for (int32_t q = (a + 1) * (b + 1) - 1; q < length; q++)
                    for (int j = 0; j < w; j++) {
                        const vec y = list[(int64_t)q * w + j];
                        list[(int64_t)q * w + j] = larger(x[j], y);
                        x[j] = smaller(x[j], y);
                    }
            }
        }
    }
}

/* From the root downwards, a row is handed on to the factors of the product that its sum is of. `on` has a byte for each
 * row of a world in a node: which sum of the list it is, counted from 1. Of equal candidates the first go to the first
 * of the equal sums on the list: `skip` counts those that are not for this one, and is -1 when it is found. */
INLINE void best_downward(const Program *p, const int w, const int k, const Room *room) {
    const uint64_t each = 0x0101010101010101ULL;
    uint64_t *on = room->on;
    for (int64_t i = p->nodes - 1; i >= 0; i--) {
        const int64_t node = p->literals + i;
        const vec *list = room->values + (int64_t)room->place[node] * w;
        uint64_t left = 0;
        for (int64_t c = 0; c < k * w; c++) left |= on[node * k * w + c];
        for (int c = 0; left && c < k; c++)
            for (int j = 0; j < w; j++) {
                const ints rank = unpacked(on[(node * k + c) * w + j]);
                vec wanted = list[j];
                ints skip = rank == 0;
                for (int32_t q = 1; q < room->length[node]; q++)
                    wanted = pick(rank == q + 1, list[(int64_t)q * w + j], wanted);
                for (int32_t q = 1; q < room->length[node]; q++)
                    skip -= (rank > q) & (list[(int64_t)(q - 1) * w + j] == wanted);
                room->wanted[c * w + j] = wanted;
                room->skip[c * w + j] = skip;
            }
        for (int32_t t = p->sums[i]; left && t < p->sums[i + 1]; t++) {
            Term term;
            if (k == 1) total(p, w, t, room->values, term.base);
            else gather(p, w, room, t, &term);
            left = 0;
            EACH_CANDIDATE(term, k) {
                vec x[MOST];
                for (int j = 0; j < w; j++) x[j] = k == 1 ? term.base[j] : candidate(w, &term, a, b, j);
                left = 0;
                for (int c = 0; c < k; c++) {
                    uint64_t taken[MOST], any = 0;
                    for (int j = 0; j < w; j++) {
                        const ints skip = room->skip[c * w + j];
                        const ints same = (x[j] == room->wanted[c * w + j]) & (skip >= 0);
                        any |= taken[j] = packed(same & (skip == 0));
                        room->skip[c * w + j] = skip + same;
                        left |= packed(skip + same >= 0);
                    }
                    for (int32_t f = p->products[t]; any && f < p->products[t + 1]; f++) {
                        const int32_t to = p->factors[f];
                        const uint64_t rank = k == 1 ? 0 : to == term.nodes[0] ? a : to == term.nodes[1] ? b : 0;
                        for (int j = 0; j < w; j++) on[((int64_t)to * k + c) * w + j] |= taken[j] & each * (rank + 1);
                    }
                }
            }
        }
    }
}

INLINE void best(const Task *t, const int w, const int k, int64_t begin, int64_t n, const Room *room) {
    const Program *p = t->program;
    ints odd[MOST];
    for (int j = 0; j < w; j++) odd[j] = (ints)all(0.0);
    for (int64_t l = 0; l < p->literals; l++) {
        vec *x = room->values + l * w;
        load(t, w, l, begin, n, x);
        for (int j = 0; j < w; j++) odd[j] |= x[j] != x[j], x[j] = larger(x[j], all(FLOOR));
    }
    if (k == 1) log_upward(p, w, 1, room->values);
    else best_upward(p, w, k, room);
    const int64_t last = p->literals + p->nodes - 1;
    const vec *list = room->values + (int64_t)room->place[last] * w;
    if (t->slopes != NULL || t->worlds != NULL) memset(room->on, 0, sizeof(uint64_t) * k * w * (last + 1));
    for (int c = 0; c < k; c++) {
        vec score[MOST];
        for (int j = 0; j < w; j++) {
            score[j] = c < room->length[last] ? list[(int64_t)c * w + j] : all(-INFINITY);
            score[j] = pick(odd[j], all(NAN), pick(score[j] < all(ZERO), all(-INFINITY), score[j]));
            if (t->slopes != NULL || t->worlds != NULL)
                room->on[(last * k + c) * w + j] = packed(score[j] >= all(ZERO)) & (0x0101010101010101ULL * (c + 1ULL));
        }
        store(t, t->roots, c, begin, n, score);
        for (int64_t r = 0; t->worlds != NULL && r < n; r++) /* no world, or that with value 0 for all variables yet */
            memset(t->worlds + ((begin + r) * k + c) * t->variables, ((const double *)score)[r] >= ZERO ? 0 : -1,
                   sizeof(int64_t) * t->variables);
    }
    if (t->slopes == NULL && t->worlds == NULL) return;
    best_downward(p, w, k, room);
    for (int64_t l = 0; l < p->literals; l++) {
        const uint8_t *chosen = (const uint8_t *)(room->on + l * k * w);
        const int64_t from = l * t->rows + begin;
        if (t->slopes != NULL)
            for (int64_t r = 0; r < n; r++) {
                if (t->single) ((float *)t->slopes)[from + r] = (float)chosen[r];
                else ((double *)t->slopes)[from + r] = (double)chosen[r];
            }
        if (t->worlds != NULL && t->variable[l] >= 0 && t->value[l] != 0)
            for (int c = 0; c < k; c++)
                for (int64_t r = 0; r < n; r++) {
                    const int64_t value = -(int64_t)(chosen[c * w * LANES + r] != 0) & t->value[l];
                    t->worlds[((begin + r) * k + c) * t->variables + t->variable[l]] += value;
                }
    }
}

/* ---- a block of rows ---- */

/* In log space: rows that are not trusted in plain numbers. */
INLINE void by_logs(const Task *t, const int w, int64_t begin, int64_t n, const Room *room, vec *root) {
    const Program *p = t->program;
    vec *v = room->values, *s = room->slopes;
    ints odd[MOST];
    for (int j = 0; j < w; j++) odd[j] = (ints)all(0.0);
    for (int64_t l = 0; l < p->literals; l++) {
        load(t, w, l, begin, n, v + l * w);
        for (int j = 0; j < w; j++) odd[j] |= v[l * w + j] != v[l * w + j], v[l * w + j] = larger(v[l * w + j], all(FLOOR));
    }
    log_upward(p, w, 0, v);
    const vec *last = v + (p->literals + p->nodes - 1) * w;
    for (int j = 0; j < w; j++)
        root[j] = pick(odd[j], all(NAN), pick(last[j] < all(ZERO), all(-INFINITY), last[j]));
    if (t->slopes == NULL) return;
    memset(s, 0, sizeof(vec) * w * (p->literals + p->nodes));
    for (int j = 0; j < w; j++) s[(p->literals + p->nodes - 1) * w + j] = pick(last[j] < all(ZERO), all(0.0), all(1.0));
    log_downward(p, w, v, s);
    for (int64_t l = 0; l < p->literals; l++)
        for (int j = 0; j < w; j++) s[l * w + j] = pick(odd[j], all(NAN), s[l * w + j]);
}

/* Raised weights, and what decides whether their sums of products can be trusted: Σ_v of the most negative and of the
 * most positive logarithm of a variable, where there are such. */
INLINE void raise(const Task *t, const int w, int64_t begin, int64_t n, vec *v, vec *low, vec *high) {
    for (int64_t l = 0; l < t->program->literals; l += 2) {
        vec *x = v + l * w, least, most;
        load(t, w, l, begin, n, x);
        load(t, w, l + 1, begin, n, x + w);
        for (int j = 0; j < w; j++) {
            least = most = all(0.0);
            for (int k = j; k < 2 * w; k += w) {
                least = smaller(pick(x[k] < all(ZERO), all(0.0), x[k]), least);
                most = pick(x[k] != x[k], x[k], larger(x[k], most)); /* what is not a number is not trusted */
                x[k] = raised(x[k]); /* nor what is too large for it */
            }
            low[j] += least;
            high[j] += most;
        }
    }
}

/* A row is trusted where no product of weights leaves the range of a double. So it is where the sum of the logarithms
 * that make it small is far from the end; and where the root is so large that it does not matter what was lost below
 * it: an error of 2^-1075 grows by no more than the weight of all that the circuit holds, the number of its models
 * times e^high. */
INLINE ints trusted(const Program *p, vec low, vec high, vec root) {
    ints small = (low >= all(-SAFE)) | (logarithm(root) >= high + all(p->bound - MARGIN));
    return (high + all(p->bound) <= all(SAFE)) & small & (root == root);
}

/* Rows in which no literal is 0, or nearly so: there derivatives with respect to logarithms are divided by it. */
INLINE void plain(const Task *t, const int w, int64_t begin, int64_t n, vec *v, ints *right) {
    for (int j = 0; j < w; j++) right[j] = ~(ints)all(0.0);
    for (int64_t l = 0; l < t->program->literals; l++) {
        load(t, w, l, begin, n, v + l * w);
        for (int j = 0; j < w; j++) {
            const vec size = larger(v[l * w + j], -v[l * w + j]);
            right[j] &= (size >= all(1 / FAR)) & (size <= all(FAR));
        }
    }
}

INLINE void block(const Task *t, const int w, int64_t begin, int64_t n, const Room *room) {
    const Program *p = t->program;
    const int64_t every = p->literals + p->nodes;
    vec *v = room->values, *s = room->slopes, *last = v + (every - 1) * w, root[MOST], low[MOST], high[MOST];
    ints right[MOST];
    for (int j = 0; j < w; j++) low[j] = high[j] = all(0.0);
    if (t->mode == LOGS) raise(t, w, begin, n, v, low, high);
    else plain(t, w, begin, n, v, right);
    upward(p, w, t->slopes == NULL ? p->nodes : p->nodes + p->derived, v);
    for (int j = 0; j < w; j++) {
        root[j] = t->mode == LOGS ? logarithm(last[j]) : last[j];
        if (t->mode == LOGS) right[j] = trusted(p, low[j], high[j], last[j]);
        low[j] = (vec)((last[j] > all(0.0)) & (ints)(all(1.0) / last[j]));
    }
    store(t, t->roots, 0, begin, n, root);
    for (int64_t l = 0; t->slopes != NULL && l < p->literals; l++) {
        vec *slope = v + (p->nodes + p->derived + l) * w;
        for (int j = 0; j < w; j++) slope[j] = t->mode == LOGS ? slope[j] * low[j] : slope[j] / v[l * w + j];
        store(t, t->slopes, l, begin, n, slope);
    }
    const int64_t *lanes = (const int64_t *)right;
    int64_t wrong = 0;
    for (int64_t r = 0; r < n; r++) wrong += lanes[r] == 0;
    if (!wrong || (t->mode == PLAIN && t->slopes == NULL)) return;
    if (t->mode == LOGS) {
        by_logs(t, w, begin, n, room, root);
    } else {
        memset(s, 0, sizeof(vec) * w * every);
        for (int j = 0; j < w; j++) s[(every - 1) * w + j] = all(1.0);
        downward(p, w, v, s, room->after);
    }
    for (int64_t r = 0; r < n; r++) {
        if (lanes[r]) continue;
        const double *found = (const double *)root + r, *slopes = (const double *)s + r;
        if (t->single) ((float *)t->roots)[begin + r] = (float)*found;
        else ((double *)t->roots)[begin + r] = *found;
        for (int64_t l = 0; t->slopes != NULL && l < p->literals; l++) {
            if (t->single) ((float *)t->slopes)[l * t->rows + begin + r] = (float)slopes[l * w * LANES];
            else ((double *)t->slopes)[l * t->rows + begin + r] = slopes[l * w * LANES];
        }
    }
}

/* Room for the values of a block; 0 where memory is lacking. */
static int furnish(const Task *t, Room *room) {
    const Program *p = t->program;
    const int64_t every = p->literals + p->nodes;
    int64_t vectors = every, more = 0;
    memset(room, 0, sizeof *room);
    if (t->mode == BEST) {
        room->place = malloc(sizeof(int32_t) * 2 * every);
        if (room->place == NULL) return 0;
        room->length = room->place + every;
        vectors = 0;
        for (int64_t i = 0; i < every; i++) {
            room->place[i] = (int32_t)vectors;
            room->length[i] = p->models[i] < 1 ? 1 : p->models[i] < t->best ? p->models[i] : t->best;
            vectors += room->length[i];
        }
        room->on = malloc(sizeof(uint64_t) * t->best * t->width * every);
        if (room->on == NULL) return 0;
        more = 2 * t->best;
    } else if (t->slopes != NULL) {
        more = p->derived > every ? p->derived : every;
    }
    room->values = aligned_alloc(sizeof(vec), sizeof(vec) * (vectors + more + p->longest) * t->width);
    if (room->values == NULL) return 0;
    room->slopes = room->wanted = room->values + vectors * t->width;
    room->after = room->slopes + more * t->width;
    room->skip = (ints *)(room->wanted + (int64_t)t->best * t->width);
    return 1;
}

static void *work(void *given) {
    Task *t = given;
    const int64_t wide = (int64_t)t->width * LANES;
    Room room;
    if (furnish(t, &room)) {
        for (int64_t begin; (begin = atomic_fetch_add(&t->next, wide)) < t->to;) {
            const int64_t n = t->to - begin < wide ? t->to - begin : wide;
            if (t->mode == BEST && t->best > 1 && t->width == 1) best(t, 1, t->best, begin, n, &room);
            else if (t->mode == BEST && t->best > 1) best(t, MOST, t->best, begin, n, &room);
            else if (t->mode == BEST && t->width == 1) best(t, 1, 1, begin, n, &room);
            else if (t->mode == BEST) best(t, MOST, 1, begin, n, &room);
            else if (t->width == 1) block(t, 1, begin, n, &room);
            else block(t, MOST, begin, n, &room);
        }
    } else {
        atomic_store(&t->failed, 1);
    }
    free(room.values);
    free(room.place);
    free(room.on);
    return NULL;
}

static int run(Task *task, int threads, int64_t from) {
    atomic_init(&task->next, from);
    atomic_init(&task->failed, 0);
    pthread_t helpers[64];
    int started = 0;
    while (started < threads - 1 && started < 64 && pthread_create(&helpers[started], NULL, work, task) == 0) started++;
    work(task);
    for (int i = 0; i < started; i++) pthread_join(helpers[i], NULL);
    return !atomic_load(&task->failed);
}

/* Rows `from` to `to` of weights, of which there are `rows`; `slopes` may be missing. Returns 0 where memory is lacking. */
int evaluate(const Program *program, int mode, int single, int width, int threads, int64_t rows, int64_t from, int64_t to,
             const void *weights, int64_t across, int64_t along, void *roots, void *slopes) {
    Task task = {.program = program, .mode = mode, .best = 1, .single = single, .width = width, .rows = rows, .to = to,
                 .weights = weights, .across = across, .along = along, .roots = roots, .slopes = slopes};
    return run(&task, threads, from);
}

/* The worlds of the `best` best: values of `variables`, -1 where there are fewer worlds; and their sums. */
int best_worlds(const Program *program, int best, int single, int width, int threads, int64_t rows, int64_t from,
                int64_t to, const void *weights, int64_t across, int64_t along, void *roots, int64_t *worlds,
                int64_t variables, const int32_t *variable, const int32_t *value) {
    Task task = {.program = program, .mode = BEST, .best = best, .single = single, .width = width, .rows = rows, .to = to,
                 .weights = weights, .across = across, .along = along, .roots = roots, .worlds = worlds,
                 .variables = variables, .variable = variable, .value = value};
    return run(&task, threads, from);
}
