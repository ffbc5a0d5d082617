/* Vectors of rows, what a circuit is, and reading and writing rows. */

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

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
    int64_t extra;                    /* places for those, which follow that of the root */
    int64_t longest;                  /* the most factors of a product */
    const int32_t *places;            /* node i is kept there: in order, but for those derived */
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
#ifdef __AVX512F__ /* one instruction, which compilers do not find in a comparison */
INLINE vec larger(vec a, vec b) { return (vec)_mm512_max_pd((__m512d)a, (__m512d)b); }
INLINE vec smaller(vec a, vec b) { return (vec)_mm512_min_pd((__m512d)a, (__m512d)b); }
INLINE uint32_t equal(vec a, vec b) { return _mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_EQ_OQ); } /* a bit a lane */
#else
INLINE vec larger(vec a, vec b) { return pick(a > b, a, b); }
INLINE vec smaller(vec a, vec b) { return pick(a < b, a, b); }
INLINE uint32_t equal(vec a, vec b) {
    uint32_t same = 0;
    for (int i = 0; i < LANES; i++) same |= (uint32_t)(a[i] == b[i]) << i;
    return same;
}
#endif

/* e^x for x at most 709; 0 below -708. For numbers that came in single precision a brief series will do: 1e-11. */
INLINE vec power(vec x, const int brief) {
    const vec shift = all(6755399441055744.0); /* 1.5 * 2^52: adding it rounds, and the low bits are the integer */
    vec shifted = x * all(1.4426950408889634) + shift, n = shifted - shift;
    vec r = brief ? x - n * all(6.931471805599453e-1)
                  : (x - n * all(6.93145751953125e-1)) - n * all(1.42860682030941723212e-6);
    vec p = all(1.0 / 362880.0);
    if (!brief) p = (((all(1.0 / 6227020800.0) * r + all(1.0 / 479001600.0)) * r + all(1.0 / 39916800.0)) * r
                     + all(1.0 / 3628800.0)) * r + p;
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

INLINE vec raised(vec x) { return power(x, 0); }

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

/* ---- rows, and room for them ---- */

typedef struct {
    int32_t singles;              /* where its factors with one sum begin; the next product says where they end */
    int32_t lists[2], lengths[2]; /* of the others, the longer one last; that of nothing where there are none */
} Term;

typedef struct {
    vec *values, *slopes, *after;
    int32_t *place, *length, *singles; /* of the lists of the best */
    int64_t zero;                      /* the place of nothing, after all of them */
    Term *terms;
    uint64_t *on; /* which worlds a sum is part of */
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
