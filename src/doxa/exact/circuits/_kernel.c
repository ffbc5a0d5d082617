/* Evaluating a circuit: all nodes in order, a block of rows at a time so that values stay in cache. In log space
 * (values, slopes) a conjunction adds and a disjunction joins by log(e^a + e^b); with plain numbers (products,
 * product_slopes) a conjunction multiplies and a disjunction adds.
 *
 * Every argument of exp is at most 0 and every argument of log at least 1, so both are short polynomials that the
 * compiler turns into vector instructions. Nothing here depends on -ffast-math, and the state of the processor is
 * left alone: subnormal numbers stay what they are. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 128

static inline float exp_float(float x) {
    float floored = x < -87.0f ? -87.0f : x;
    float n = (floored * 1.44269504f + 12582912.0f) - 12582912.0f;
    float r = (floored - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return x < -87.0f ? 0.0f : p * scale;
}

static inline float log_float(float x) {
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    int32_t e = (bits - 0x3f3504f3) >> 23;
    bits -= e << 23;
    float m;
    memcpy(&m, &bits, sizeof m);
    float t = (m - 1.0f) / (m + 1.0f), s = t * t;
    float p = 1.0f / 11.0f;
    p = p * s + 1.0f / 9.0f;
    p = p * s + 1.0f / 7.0f;
    p = p * s + 1.0f / 5.0f;
    p = p * s + 1.0f / 3.0f;
    return (float)e * 0.693147181f + 2.0f * (t + t * s * p);
}

static inline double exp_double(double x) {
    double floored = x < -708.0 ? -708.0 : x;
    double n = (floored * 1.4426950408889634 + 6755399441055744.0) - 6755399441055744.0;
    double r = (floored - n * 6.93145751953125e-1) - n * 1.42860682030941723212e-6;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    /* n as an integer: its bits are the low ones of n + 1.5 * 2^52 */
    double shifted = n + 6755399441055744.0;
    int64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return x < -708.0 ? 0.0 : p * scale;
}

static inline double log_double(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int64_t e = (bits - 0x3fe6a09e667f3bcdLL) >> 52;
    bits -= e << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    double t = (m - 1.0) / (m + 1.0), s = t * t;
    double p = 1.0 / 23.0;
    p = p * s + 1.0 / 21.0;
    p = p * s + 1.0 / 19.0;
    p = p * s + 1.0 / 17.0;
    p = p * s + 1.0 / 15.0;
    p = p * s + 1.0 / 13.0;
    p = p * s + 1.0 / 11.0;
    p = p * s + 1.0 / 9.0;
    p = p * s + 1.0 / 7.0;
    p = p * s + 1.0 / 5.0;
    p = p * s + 1.0 / 3.0;
    return (double)e * 0.6931471805599453 + 2.0 * (t + t * s * p);
}

#define KERNEL(T, EXP, LOG, NAME)                                                                                    \
    void values_##NAME(int64_t literals, int64_t nodes, const int8_t *kinds, const int64_t *offsets,                 \
                       const int64_t *children, int64_t rows, int64_t from, int64_t to, T *values) {                 \
        for (int64_t begin = from; begin < to; begin += BLOCK) {                                                     \
            const int64_t n = to - begin < BLOCK ? to - begin : BLOCK;                                               \
            for (int64_t i = 0; i < nodes; i++) {                                                                    \
                T *restrict out = values + (literals + i) * rows + begin;                                            \
                const int64_t first = offsets[i], last = offsets[i + 1];                                             \
                if (first == last) {                                                                                 \
                    for (int64_t r = 0; r < n; r++) out[r] = kinds[i] ? (T)-1e30 : (T)0;                             \
                    continue;                                                                                        \
                }                                                                                                    \
                const T *restrict a = values + children[first] * rows + begin;                                       \
                if (last == first + 1) {                                                                             \
                    for (int64_t r = 0; r < n; r++) out[r] = a[r];                                                   \
                } else if (kinds[i] == 0) {                                                                          \
                    const T *restrict b = values + children[first + 1] * rows + begin;                               \
                    for (int64_t r = 0; r < n; r++) out[r] = a[r] + b[r];                                            \
                    for (int64_t c = first + 2; c < last; c++) {                                                     \
                        const T *restrict x = values + children[c] * rows + begin;                                   \
                        for (int64_t r = 0; r < n; r++) out[r] += x[r];                                              \
                    }                                                                                                \
                } else if (last == first + 2) {                                                                      \
                    const T *restrict b = values + children[first + 1] * rows + begin;                               \
                    for (int64_t r = 0; r < n; r++) {                                                                \
                        const T d = a[r] - b[r], top = d > 0 ? a[r] : b[r];                                          \
                        out[r] = top + LOG((T)1 + EXP(d > 0 ? -d : d));                                              \
                    }                                                                                                \
                } else {                                                                                             \
                    T top[BLOCK], sum[BLOCK];                                                                        \
                    for (int64_t r = 0; r < n; r++) top[r] = a[r], sum[r] = 0;                                       \
                    for (int64_t c = first + 1; c < last; c++) {                                                     \
                        const T *restrict x = values + children[c] * rows + begin;                                   \
                        for (int64_t r = 0; r < n; r++) top[r] = x[r] > top[r] ? x[r] : top[r];                      \
                    }                                                                                                \
                    for (int64_t c = first; c < last; c++) {                                                         \
                        const T *restrict x = values + children[c] * rows + begin;                                   \
                        for (int64_t r = 0; r < n; r++) sum[r] += EXP(x[r] - top[r]);                                \
                    }                                                                                                \
                    for (int64_t r = 0; r < n; r++) out[r] = top[r] + LOG(sum[r]);                                   \
                }                                                                                                    \
            }                                                                                                        \
        }                                                                                                            \
    }                                                                                                                \
    void slopes_##NAME(int64_t literals, int64_t nodes, const int8_t *kinds, const int64_t *offsets,                 \
                       const int64_t *children, int64_t rows, int64_t from, int64_t to, const T *values, T *slopes) { \
        for (int64_t begin = from; begin < to; begin += BLOCK) {                                                     \
            const int64_t n = to - begin < BLOCK ? to - begin : BLOCK;                                               \
            for (int64_t i = nodes - 1; i >= 0; i--) {                                                               \
                const T *g = slopes + (literals + i) * rows + begin;                                                 \
                const T *restrict v = values + (literals + i) * rows + begin;                                        \
                for (int64_t c = offsets[i]; c < offsets[i + 1]; c++) {                                              \
                    T *restrict out = slopes + children[c] * rows + begin;                                           \
                    if (kinds[i] == 0) {                                                                             \
                        for (int64_t r = 0; r < n; r++) out[r] += g[r];                                              \
                    } else {                                                                                         \
                        const T *restrict x = values + children[c] * rows + begin;                                   \
                        for (int64_t r = 0; r < n; r++) out[r] += g[r] * EXP(x[r] - v[r]);                           \
                    }                                                                                                \
                }                                                                                                    \
            }                                                                                                        \
        }                                                                                                            \
    }

KERNEL(float, exp_float, log_float, float)
KERNEL(double, exp_double, log_double, double)

/* The derivative of a product with respect to a factor is the product of the others: of those before it, times those
 * after it. Nothing is divided, so factors may be 0. Returns 0 where memory for the products is lacking. */
#define REAL(T, NAME)                                                                                                \
    void products_##NAME(int64_t literals, int64_t nodes, const int8_t *kinds, const int64_t *offsets,               \
                         const int64_t *children, int64_t rows, int64_t from, int64_t to, T *values) {               \
        for (int64_t begin = from; begin < to; begin += BLOCK) {                                                     \
            const int64_t n = to - begin < BLOCK ? to - begin : BLOCK;                                               \
            for (int64_t i = 0; i < nodes; i++) {                                                                    \
                T *restrict out = values + (literals + i) * rows + begin;                                            \
                const int64_t first = offsets[i], last = offsets[i + 1];                                             \
                if (first == last) {                                                                                 \
                    for (int64_t r = 0; r < n; r++) out[r] = kinds[i] ? (T)0 : (T)1;                                 \
                    continue;                                                                                        \
                }                                                                                                    \
                const T *restrict a = values + children[first] * rows + begin;                                       \
                if (last == first + 1) {                                                                             \
                    for (int64_t r = 0; r < n; r++) out[r] = a[r];                                                   \
                    continue;                                                                                        \
                }                                                                                                    \
                const T *restrict b = values + children[first + 1] * rows + begin;                                   \
                if (kinds[i] == 0) {                                                                                 \
                    for (int64_t r = 0; r < n; r++) out[r] = a[r] * b[r];                                            \
                } else {                                                                                             \
                    for (int64_t r = 0; r < n; r++) out[r] = a[r] + b[r];                                            \
                }                                                                                                    \
                for (int64_t c = first + 2; c < last; c++) {                                                         \
                    const T *restrict x = values + children[c] * rows + begin;                                       \
                    if (kinds[i] == 0) {                                                                             \
                        for (int64_t r = 0; r < n; r++) out[r] *= x[r];                                              \
                    } else {                                                                                         \
                        for (int64_t r = 0; r < n; r++) out[r] += x[r];                                              \
                    }                                                                                                \
                }                                                                                                    \
            }                                                                                                        \
        }                                                                                                            \
    }                                                                                                                \
    int product_slopes_##NAME(int64_t literals, int64_t nodes, const int8_t *kinds, const int64_t *offsets,          \
                              const int64_t *children, int64_t rows, int64_t from, int64_t to, const T *values, T *slopes) { \
        int64_t most = 1;                                                                                            \
        for (int64_t i = 0; i < nodes; i++)                                                                          \
            if (offsets[i + 1] - offsets[i] > most) most = offsets[i + 1] - offsets[i];                              \
        T *after = malloc((size_t)most * BLOCK * sizeof(T));                                                         \
        if (after == NULL) return 0;                                                                                 \
        for (int64_t begin = from; begin < to; begin += BLOCK) {                                                     \
            const int64_t n = to - begin < BLOCK ? to - begin : BLOCK;                                               \
            for (int64_t i = nodes - 1; i >= 0; i--) {                                                               \
                const T *g = slopes + (literals + i) * rows + begin;                                                 \
                const int64_t first = offsets[i], count = offsets[i + 1] - first;                                    \
                if (kinds[i] != 0 || count < 2) {                                                                    \
                    for (int64_t c = first; c < first + count; c++) {                                                \
                        T *restrict out = slopes + children[c] * rows + begin;                                       \
                        for (int64_t r = 0; r < n; r++) out[r] += g[r];                                              \
                    }                                                                                                \
                    continue;                                                                                        \
                }                                                                                                    \
                const T *restrict a = values + children[first] * rows + begin;                                       \
                if (count == 2) {                                                                                    \
                    const T *restrict b = values + children[first + 1] * rows + begin;                               \
                    T *left = slopes + children[first] * rows + begin;                                               \
                    T *right = slopes + children[first + 1] * rows + begin;                                          \
                    for (int64_t r = 0; r < n; r++) left[r] += g[r] * b[r];                                          \
                    for (int64_t r = 0; r < n; r++) right[r] += g[r] * a[r];                                         \
                    continue;                                                                                        \
                }                                                                                                    \
                for (int64_t r = 0; r < n; r++) after[(count - 1) * BLOCK + r] = 1;                                  \
                for (int64_t c = count - 2; c >= 0; c--) {                                                           \
                    const T *restrict x = values + children[first + c + 1] * rows + begin;                           \
                    for (int64_t r = 0; r < n; r++)                                                                  \
                        after[c * BLOCK + r] = after[(c + 1) * BLOCK + r] * x[r];                                    \
                }                                                                                                    \
                T before[BLOCK];                                                                                     \
                for (int64_t r = 0; r < n; r++) before[r] = g[r];                                                    \
                for (int64_t c = 0; c < count; c++) {                                                                \
                    const T *restrict x = values + children[first + c] * rows + begin;                               \
                    T *restrict out = slopes + children[first + c] * rows + begin;                                   \
                    for (int64_t r = 0; r < n; r++) out[r] += before[r] * after[c * BLOCK + r];                      \
                    for (int64_t r = 0; r < n; r++) before[r] *= x[r];                                               \
                }                                                                                                    \
            }                                                                                                        \
        }                                                                                                            \
        free(after);                                                                                                 \
        return 1;                                                                                                    \
    }

REAL(float, float)
REAL(double, double)
