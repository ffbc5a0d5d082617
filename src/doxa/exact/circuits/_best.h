/* The best worlds of a circuit. */

/* A node has a list of its best sums, in order: `length[node]` of them, a power of 2, from `place[node]` on. Where it has
 * fewer worlds, the rest is -inf. The factors of a product have one sum each, but for two at most. */
typedef struct {
    vec base[MOST];               /* what the others add */
    int32_t nodes[2], lengths[2]; /* of those two, the longer one last */
    const vec *lists[2];
} Term;

INLINE const vec *sums_of(const Room *room, const int w, int64_t node) { return room->values + (int64_t)room->place[node] * w; }

INLINE void gather(const Program *p, const int w, const Room *room, int32_t t, Term *term) {
    static const vec nothing[MOST];
    for (int s = 0; s < 2; s++) term->nodes[s] = -1, term->lengths[s] = 1, term->lists[s] = nothing;
    for (int j = 0; j < w; j++) term->base[j] = all(0.0);
    for (int32_t f = p->products[t]; f < p->products[t + 1]; f++) {
        const int32_t node = p->factors[f], length = room->length[node];
        const vec *list = sums_of(room, w, node);
        if (length == 1) {
            for (int j = 0; j < w; j++) term->base[j] += list[j];
        } else {
            const int to = length > term->lengths[1];
            if (to) term->nodes[0] = term->nodes[1], term->lengths[0] = term->lengths[1], term->lists[0] = term->lists[1];
            term->nodes[to] = node, term->lengths[to] = length, term->lists[to] = list;
        }
    }
}

/* Both lists are in order, best first: so is what becomes of the first, the best of both. */
INLINE void swap(vec *a, vec *b) {
    const vec x = larger(*a, *b);
    *b = smaller(*a, *b), *a = x;
}

INLINE void merge(const int n, vec *x, const vec *y) {
#pragma GCC unroll 8
    for (int i = 0; i < n; i++) x[i] = larger(x[i], y[n - 1 - i]); /* falls and rises, or the other way round */
#pragma GCC unroll 4
    for (int far = n / 2; far > 0; far /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < n; i++)
            if (!(i & far)) swap(x + i, x + i + far);
}

/* The list of a node with n sums. Every sum of the best n is of an a-th and a b-th best with a b <= n. */
INLINE void best_of(const Program *p, const int w, const int n, const Room *room, int64_t i, vec *list) {
    for (int32_t t = p->sums[i]; t < p->sums[i + 1]; t++) {
        Term term;
        gather(p, w, room, t, &term);
        for (int j = 0; j < w; j++) {
            const vec *left = term.lists[0] + j, *right = term.lists[1] + j;
            vec x[n], y[n], first = term.base[j] + left[0];
#pragma GCC unroll 8
            for (int b = 0; b < n; b++) y[b] = b < term.lengths[1] ? first + right[b * w] : all(-INFINITY);
            if (t == p->sums[i]) {
#pragma GCC unroll 8
                for (int b = 0; b < n; b++) x[b] = y[b];
            } else {
#pragma GCC unroll 8
                for (int b = 0; b < n; b++) x[b] = list[b * w + j];
                merge(n, x, y);
            }
#pragma GCC unroll 8
            for (int a = 1; a < n; a++) {
                if (a >= term.lengths[0]) break;
                first = term.base[j] + left[a * w];
#pragma GCC unroll 8
                for (int b = 0; (a + 1) * (b + 1) <= n; b++) {
                    if (b >= term.lengths[1]) break;
                    vec late = first + right[b * w];
                    /* those with smaller a and b are on the list already, and no worse */
#pragma GCC unroll 8
                    for (int q = (a + 1) * (b + 1) - 1; q < n; q++) swap(x + q, &late);
                }
            }
#pragma GCC unroll 8
            for (int b = 0; b < n; b++) list[b * w + j] = x[b];
        }
    }
}

INLINE void best_upward(const Program *p, const int w, const Room *room) {
    for (int64_t i = 0; i < p->nodes; i++) {
        vec *list = (vec *)sums_of(room, w, p->literals + i);
        for (int64_t q = 0; q < (int64_t)room->length[p->literals + i] * w && p->sums[i] == p->sums[i + 1]; q++)
            list[q] = all(-INFINITY); /* nothing is added up */
        switch (room->length[p->literals + i]) {
        case 1: best_of(p, w, 1, room, i, list); break;
        case 2: best_of(p, w, 2, room, i, list); break;
        case 4: best_of(p, w, 4, room, i, list); break;
        case 8: best_of(p, w, 8, room, i, list); break;
        default: best_of(p, w, room->length[p->literals + i], room, i, list);
        }
    }
}

/* ---- worlds ---- */

/* From the root downwards, a world is handed on to the factors of the product that its sum is of, in all rows at once:
 * `on` has, for each sum of a node's list and each vector of rows, a byte for each of 8 worlds and in it a bit for each
 * row. Of equal candidates, in one and the same order, the first go to the first of the equal sums: `skip` counts those
 * that are not for this one. */
INLINE void best_downward(const Program *p, const int w, const Room *room) {
    for (int64_t i = p->nodes - 1; i >= 0; i--) {
        const int64_t place = room->place[p->literals + i];
        for (int32_t q = 0; q < room->length[p->literals + i]; q++) {
            const vec *value = room->values + (place + q) * w;
            uint64_t left[MOST], any = 0;
            uint32_t later[MOST], more = 0; /* rows with some to skip */
            uint8_t skip[MOST * LANES];
            for (int j = 0; j < w; j++) any |= left[j] = room->on[(place + q) * w + j];
            if (!any) continue;
            for (int j = 0; j < w; j++) more |= later[j] = q > 0 ? equal(value[j], value[j - w]) : 0;
            for (int r = 0; more && r < w * LANES; r++) {
                const double *lane = (const double *)value + r;
                for (skip[r] = 0; skip[r] < q && *lane == lane[-(skip[r] + 1) * w * LANES];) skip[r]++;
            }
            for (int32_t t = p->sums[i], last = p->sums[i + 1] - 1; any && t <= last; t++) {
                Term term;
                gather(p, w, room, t, &term);
                for (int32_t a = 0; a <= q && a < term.lengths[0]; a++)
                    for (int32_t b = 0; (a + 1) * (b + 1) <= q + 1 && b < term.lengths[1]; b++) {
                        uint64_t taken[MOST], found = 0;
                        any = 0;
                        for (int j = 0; j < w; j++) {
                            const vec x = (term.base[j] + term.lists[0][a * w + j]) + term.lists[1][b * w + j];
                            const uint32_t same = equal(value[j], x);
                            found |= taken[j] = left[j] & (same & ~later[j]) * 0x0101010101010101ULL;
                            any |= left[j] &= ~taken[j];
                            for (more = same & later[j]; more; more &= more - 1) {
                                const int r = __builtin_ctz(more);
                                if (--skip[j * LANES + r] == 0) later[j] &= ~(1u << r);
                            }
                        }
                        for (int32_t f = p->products[t]; found && f < p->products[t + 1]; f++) {
                            const int32_t to = p->factors[f];
                            const int64_t rank = to == term.nodes[0] ? a : to == term.nodes[1] ? b : 0;
                            for (int j = 0; j < w; j++) room->on[(room->place[to] + rank) * w + j] |= taken[j];
                        }
                    }
            }
        }
    }
}

/* What the literals say of the worlds from `first` on, which were traced. */
INLINE void tell(const Task *t, const int w, int first, int64_t begin, int64_t n, const Room *room) {
    for (int64_t l = 0; l < t->program->literals; l++) {
        const uint64_t *on = room->on + l * w;
        for (int64_t r = 0; t->slopes != NULL && r < n; r++) {
            const int chosen = on[r / LANES] >> r % LANES & 1;
            if (t->single) ((float *)t->slopes)[l * t->rows + begin + r] = (float)chosen;
            else ((double *)t->slopes)[l * t->rows + begin + r] = chosen;
        }
        if (t->worlds == NULL || t->variable[l] < 0 || t->value[l] == 0) continue;
        for (int j = 0; j < w; j++)
            for (uint64_t left = on[j]; left; left &= left - 1) {
                const int bit = __builtin_ctzll(left);
                const int64_t row = begin + j * LANES + bit % 8;
                t->worlds[(row * t->best + first + bit / 8) * t->variables + t->variable[l]] = t->value[l];
            }
    }
}

INLINE void best(const Task *t, const int w, int64_t begin, int64_t n, const Room *room) {
    const Program *p = t->program;
    const int64_t last = p->literals + p->nodes - 1;
    ints odd[MOST];
    for (int j = 0; j < w; j++) odd[j] = (ints)all(0.0);
    for (int64_t l = 0; l < p->literals; l++) {
        vec *x = room->values + l * w;
        load(t, w, l, begin, n, x);
        for (int j = 0; j < w; j++) odd[j] |= x[j] != x[j], x[j] = larger(x[j], all(FLOOR));
    }
    if (t->best == 1) log_upward(p, w, 1, room->values);
    else best_upward(p, w, room);
    for (int first = 0; first < t->best; first += 8) {
        if (room->on != NULL) memset(room->on, 0, sizeof(uint64_t) * w * (room->place[last] + room->length[last]));
        for (int c = first; c < t->best && c < first + 8; c++) {
            vec score[MOST];
            for (int j = 0; j < w; j++) {
                score[j] = c < room->length[last] ? sums_of(room, w, last)[c * w + j] : all(-INFINITY);
                score[j] = pick(odd[j], all(NAN), pick(score[j] < all(ZERO), all(-INFINITY), score[j]));
            }
            store(t, t->roots, c, begin, n, score);
            for (int64_t r = 0; room->on != NULL && r < n; r++) {
                const int there = ((const double *)score)[r] >= ZERO;
                if (there) room->on[(room->place[last] + c) * w + r / LANES] |= 1ULL << (8 * (c - first) + r % LANES);
                if (t->worlds != NULL) /* no world, or one whose variables are 0 where nothing else is said */
                    memset(t->worlds + ((begin + r) * t->best + c) * t->variables, there ? 0 : -1,
                           sizeof(int64_t) * t->variables);
            }
        }
        if (room->on == NULL) continue;
        best_downward(p, w, room);
        tell(t, w, first, begin, n, room);
    }
}
