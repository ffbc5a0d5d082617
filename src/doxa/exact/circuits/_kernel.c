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

#include "_rows.h"

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
        for (int j = 0; j < w; j++) v[(int64_t)p->places[i] * w + j] = sum[j];
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

#include "_best.h"

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

/* Raised weights, and what decides whether their sums of products can be trusted: Σ_v of the most negative logarithm of
 * a variable, where there is such, and the sum of the positive ones. */
INLINE void raise(const Task *t, const int w, const int brief, int64_t begin, int64_t n, vec *v, vec *low, vec *high) {
    for (int64_t l = 0; l < t->program->literals; l += 2) {
        vec *x = v + l * w, least;
        load(t, w, l, begin, n, x);
        load(t, w, l + 1, begin, n, x + w);
        for (int j = 0; j < w; j++) {
            least = all(0.0);
            for (int k = j; k < 2 * w; k += w) {
                least = smaller(pick(x[k] < all(ZERO), all(0.0), x[k]), least);
                high[j] += larger(all(0.0), x[k]); /* the second if one is not a number, which is not trusted */
                x[k] = power(x[k], brief); /* nor is what is too large for it */
            }
            low[j] += least;
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
    if (t->mode == LOGS && p->bound > SAFE) { /* no row is trusted */
        by_logs(t, w, begin, n, room, root);
        store(t, t->roots, 0, begin, n, root);
        for (int64_t l = 0; t->slopes != NULL && l < p->literals; l++) store(t, t->slopes, l, begin, n, s + l * w);
        return;
    }
    if (t->mode == LOGS && t->single) raise(t, w, 1, begin, n, v, low, high);
    else if (t->mode == LOGS) raise(t, w, 0, begin, n, v, low, high);
    else plain(t, w, begin, n, v, right);
    upward(p, w, t->slopes == NULL ? p->nodes : p->nodes + p->derived, v);
    for (int j = 0; j < w; j++) {
        root[j] = t->mode == LOGS ? logarithm(last[j]) : last[j];
        if (t->mode == LOGS) right[j] = trusted(p, low[j], high[j], last[j]);
        low[j] = (vec)((last[j] > all(0.0)) & (ints)(all(1.0) / last[j]));
    }
    store(t, t->roots, 0, begin, n, root);
    for (int64_t l = 0; t->slopes != NULL && l < p->literals; l++) {
        vec *slope = v + (p->nodes + p->extra + l) * w;
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
        if (!arrange(t, room)) return 0;
        vectors = room->zero + 1;
    } else if (t->slopes != NULL) {
        more = p->extra > every ? p->extra : every;
    }
    room->values = aligned_alloc(sizeof(vec), sizeof(vec) * (vectors + more + p->longest) * t->width);
    if (room->values == NULL) return 0;
    room->slopes = room->values + vectors * t->width;
    room->after = room->slopes + more * t->width;
    return 1;
}

static void *work(void *given) {
    Task *t = given;
    const int64_t wide = (int64_t)t->width * LANES;
    Room room;
    if (furnish(t, &room)) {
        for (int64_t begin; (begin = atomic_fetch_add(&t->next, wide)) < t->to;) {
            const int64_t n = t->to - begin < wide ? t->to - begin : wide;
            switch (t->width + (t->mode == BEST ? 8 : 0)) {
            case 1: block(t, 1, begin, n, &room); break;
            case 2: block(t, 2, begin, n, &room); break;
            case 4: block(t, 4, begin, n, &room); break;
            case 9: best(t, 1, begin, n, &room); break;
            case 10: best(t, 2, begin, n, &room); break;
            default: best(t, 4, begin, n, &room);
            }
        }
    } else {
        atomic_store(&t->failed, 1);
    }
    free(room.values);
    free(room.place);
    free(room.terms);
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
