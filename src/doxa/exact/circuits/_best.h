/* The best worlds of a circuit.
 *
 * A node has a list of its best sums, in order: `length[node]` of them, a power of 2, from `place[node]` on. Where it has
 * fewer worlds, the rest is -inf. The factors of a product have one sum each, but for two at most. */

/* Room for lists, and where a product finds them; 0 where memory is lacking. */
static int arrange(const Task *t, Room *room) {
    const Program *p = t->program;
    const int64_t every = p->literals + p->nodes, terms = p->sums[p->nodes];
    int64_t zero = 0;
    room->place = malloc(sizeof(int32_t) * (2 * every + p->products[terms]));
    room->terms = malloc(sizeof(Term) * (terms + 1));
    if (room->place == NULL || room->terms == NULL) return 0;
    room->length = room->place + every;
    room->singles = room->length + every;
    for (int64_t i = 0; i < every; i++) {
        room->place[i] = (int32_t)zero;
        for (room->length[i] = 1; room->length[i] < t->best && room->length[i] < p->models[i];) room->length[i] *= 2;
        zero += room->length[i];
    }
    room->zero = zero;
    int32_t singles = 0;
    for (int64_t i = 0; i < terms; i++) {
        Term *term = room->terms + i;
        *term = (Term){singles, {(int32_t)zero, (int32_t)zero}, {1, 1}};
        for (int32_t f = p->products[i]; f < p->products[i + 1]; f++) {
            const int32_t place = room->place[p->factors[f]], length = room->length[p->factors[f]];
            const int to = length > term->lengths[1];
            if (length == 1) {
                room->singles[singles++] = place;
                continue;
            }
            if (to) term->lists[0] = term->lists[1], term->lengths[0] = term->lengths[1];
            term->lists[to] = place, term->lengths[to] = length;
        }
    }
    room->terms[terms].singles = singles;
    if (t->slopes == NULL && t->worlds == NULL) return 1;
    room->on = malloc(sizeof(uint64_t) * t->width * (zero + 1));
    return room->on != NULL;
}

INLINE void single(const int w, const Room *room, const Term *term, vec *out) {
    for (int j = 0; j < w; j++) out[j] = all(0.0);
    for (int32_t f = term->singles; f < term[1].singles; f++)
        for (int j = 0; j < w; j++) out[j] += room->values[(int64_t)room->singles[f] * w + j];
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

/* The list of a node with n sums, with room for so many. Every sum of the best n is of an a-th and a b-th best with
 * a b <= n. */
INLINE void best_of(const Program *p, const int w, const int n, const Room *room, int64_t i, vec *x, vec *y) {
    for (int j = 0; j < w; j++) {
        const vec *v = room->values + j;
        vec *list = room->values + (int64_t)room->place[p->literals + i] * w + j;
#pragma GCC unroll 8
        for (int b = 0; b < n; b++) x[b] = all(-INFINITY);
        for (int32_t t = p->sums[i]; t < p->sums[i + 1]; t++) {
            const Term *term = room->terms + t;
            const vec *left = v + (int64_t)term->lists[0] * w, *right = v + (int64_t)term->lists[1] * w;
            vec base = all(0.0), first;
            for (int32_t f = term->singles; f < term[1].singles; f++) base += v[(int64_t)room->singles[f] * w];
            first = base + left[0];
#pragma GCC unroll 8
            for (int b = 0; b < n; b++) y[b] = b < term->lengths[1] ? first + right[b * w] : all(-INFINITY);
            merge(n, x, y);
#pragma GCC unroll 8
            for (int a = 1; a < n; a++) {
                if (a >= term->lengths[0]) break;
                first = base + left[a * w];
#pragma GCC unroll 8
                for (int b = 0; (a + 1) * (b + 1) <= n; b++) {
                    if (b >= term->lengths[1]) break;
                    vec late = first + right[b * w];
                    /* those with smaller a and b are on the list already, and no worse */
#pragma GCC unroll 8
                    for (int q = (a + 1) * (b + 1) - 1; q < n; q++) swap(x + q, &late);
                }
            }
        }
#pragma GCC unroll 8
        for (int b = 0; b < n; b++) list[b * w] = x[b];
    }
}

/* Made once, for blocks of any width: it works on one vector at a time, and takes a compiler long. */
static __attribute__((noinline, noclone)) void best_upward(const Program *p, const int w, const Room *room) {
    for (int64_t i = 0; i < p->nodes; i++) {
        const int n = room->length[p->literals + i];
        vec one[2], two[4], four[8], eight[16], many[256];
        if (n == 1) best_of(p, w, 1, room, i, one, one + 1);
        else if (n == 2) best_of(p, w, 2, room, i, two, two + 2);
        else if (n == 4) best_of(p, w, 4, room, i, four, four + 4);
        else if (n == 8) best_of(p, w, 8, room, i, eight, eight + 8);
        else best_of(p, w, n, room, i, many, many + 128);
    }
}

/* From the root downwards, a world is handed on to the factors of the product that its sum is of, in all rows at once:
 * `on` has, for each sum of a node's list and each vector of rows, a byte for each of 8 worlds and in it a bit for each
 * row. Of equal candidates, in one and the same order, the first go to the first of the equal sums: `skip` counts those
 * that are not for this one. */
INLINE void best_downward(const Program *p, const int w, const Room *room) {
    uint64_t *on = room->on;
    for (int64_t i = p->nodes - 1; i >= 0; i--) {
        const int64_t place = room->place[p->literals + i];
        for (int32_t q = 0; q < room->length[p->literals + i]; q++) {
            const vec *value = room->values + (place + q) * w;
            uint64_t left[MOST], any = 0;
            uint32_t later[MOST], more = 0; /* rows with some to skip */
            uint8_t skip[MOST * LANES];
            for (int j = 0; j < w; j++) any |= left[j] = on[(place + q) * w + j];
            if (!any) continue;
            for (int j = 0; j < w; j++) more |= later[j] = q > 0 ? equal(value[j], value[j - w]) : 0;
            for (int r = 0; more && r < w * LANES; r++) {
                const double *lane = (const double *)value + r;
                for (skip[r] = 0; skip[r] < q && *lane == lane[-(skip[r] + 1) * w * LANES];) skip[r]++;
            }
            for (int32_t t = p->sums[i], last = p->sums[i + 1] - 1; any && t <= last; t++) {
                const Term *term = room->terms + t;
                const int rest = q == 0 && t == last; /* whatever is left is of this one */
                vec base[MOST] = {all(0.0)};
                if (!rest) single(w, room, term, base);
                for (int32_t a = 0; any && a <= q && a < term->lengths[0]; a++)
                    for (int32_t b = 0; any && (a + 1) * (b + 1) <= q + 1 && b < term->lengths[1]; b++) {
                        const int64_t left_at = (term->lists[0] + (int64_t)a) * w, right_at = (term->lists[1] + (int64_t)b) * w;
                        uint64_t taken[MOST], found = 0;
                        any = 0;
                        for (int j = 0; j < w; j++) {
                            uint32_t same = 0xff;
                            if (!rest) same = equal(value[j], (base[j] + room->values[left_at + j]) + room->values[right_at + j]);
                            found |= taken[j] = left[j] & (same & ~later[j]) * 0x0101010101010101ULL;
                            any |= left[j] &= ~taken[j];
                            for (more = same & later[j]; more; more &= more - 1) {
                                const int r = __builtin_ctz(more);
                                if (--skip[j * LANES + r] == 0) later[j] &= ~(1u << r);
                            }
                        }
                        if (!found) continue;
                        for (int j = 0; j < w; j++) on[left_at + j] |= taken[j], on[right_at + j] |= taken[j];
                        for (int32_t f = term->singles; f < term[1].singles; f++)
                            for (int j = 0; j < w; j++) on[(int64_t)room->singles[f] * w + j] |= taken[j];
                    }
            }
        }
    }
}

/* The same for the best world alone: a word for each node, with a byte for each vector of rows. */
INLINE void first_downward(const Program *p, const int w, const vec *v, uint64_t *on) {
    for (int64_t i = p->nodes - 1; i >= 0; i--) {
        const vec *value = v + (p->literals + i) * w;
        uint64_t left = on[p->literals + i];
        for (int32_t t = p->sums[i], last = p->sums[i + 1] - 1; left && t <= last; t++) {
            uint64_t taken = left;
            if (t < last) {
                vec x[MOST];
                uint64_t same = 0;
                total(p, w, t, v, x);
                for (int j = 0; j < w; j++) same |= (uint64_t)equal(value[j], x[j]) << 8 * j;
                taken &= same;
            }
            left &= ~taken;
            for (int32_t f = p->products[t]; taken && f < p->products[t + 1]; f++) on[p->factors[f]] |= taken;
        }
    }
}

/* What the literals say of the worlds from `first` on, which were traced. */
INLINE void tell(const Task *t, const int w, int first, int64_t begin, int64_t n, const Room *room) {
    for (int64_t l = 0; l < t->program->literals; l++) {
        const int words = t->best == 1 ? 1 : w;
        const uint64_t *on = room->on + l * words;
        for (int64_t r = 0; t->slopes != NULL && r < n; r++) { /* of the best alone */
            const int chosen = *on >> r & 1;
            if (t->single) ((float *)t->slopes)[l * t->rows + begin + r] = (float)chosen;
            else ((double *)t->slopes)[l * t->rows + begin + r] = chosen;
        }
        if (t->worlds == NULL || t->variable[l] < 0 || t->value[l] == 0) continue;
        for (int j = 0; j < words; j++)
            for (uint64_t left = on[j]; left; left &= left - 1) {
                const int bit = __builtin_ctzll(left);
                const int64_t row = begin + (t->best == 1 ? bit : j * LANES + bit % 8);
                const int world = t->best == 1 ? 0 : first + bit / 8;
                t->worlds[(row * t->best + world) * t->variables + t->variable[l]] = t->value[l];
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
    for (int j = 0; j < w; j++) room->values[room->zero * w + j] = all(0.0);
    if (t->best == 1) log_upward(p, w, 1, room->values);
    else best_upward(p, w, room);
    for (int first = 0; first < t->best; first += 8) {
        if (room->on != NULL) memset(room->on, 0, sizeof(uint64_t) * (t->best == 1 ? 1 : w) * (room->zero + 1));
        for (int c = first; c < t->best && c < first + 8; c++) {
            vec score[MOST];
            for (int j = 0; j < w; j++) {
                score[j] = c < room->length[last] ? room->values[(room->place[last] + (int64_t)c) * w + j] : all(-INFINITY);
                score[j] = pick(odd[j], all(NAN), pick(score[j] < all(ZERO), all(-INFINITY), score[j]));
            }
            store(t, t->roots, c, begin, n, score);
            for (int64_t r = 0; room->on != NULL && r < n; r++) {
                const int there = ((const double *)score)[r] >= ZERO;
                if (there && t->best == 1) room->on[last] |= 1ULL << r;
                else if (there) room->on[(room->place[last] + c) * w + r / LANES] |= 1ULL << (8 * (c - first) + r % LANES);
                if (t->worlds != NULL) /* no world, or one whose variables are 0 where nothing else is said */
                    memset(t->worlds + ((begin + r) * t->best + c) * t->variables, there ? 0 : -1,
                           sizeof(int64_t) * t->variables);
            }
        }
        if (room->on == NULL) continue;
        if (t->best == 1) first_downward(p, w, room->values, room->on);
        else best_downward(p, w, room);
        tell(t, w, first, begin, n, room);
    }
}
