/* The best worlds of a circuit. */

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
