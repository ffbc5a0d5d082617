/* Fewer edges for the same circuit: see _shrinking.py. A row is the list of the children of a node; rows of conjunctions
 * with more than two, which alone can share, are wide, and in order. No row grows once they are made. */

enum { PAIRS = 48 };

typedef struct {
    /* Lists first: they are released together. */
    Numbers kinds, at, size, wide, pool;    /* rows */
    Numbers places, place_at, classes;      /* where each child is */
    Numbers owner_at, owners, owner_pool;   /* the same for rows whose pairs are looked at: these change */
    Numbers counts, heap, rows, shared, seen, beside, others, number, stack;
    Sequences alike, pairs;
    int64_t first, old, operations, stamp, phase;
    Graph graph;
} Sharing;

static inline int64_t *row(Sharing *s, int64_t i) { return s->pool.at + s->at.at[i]; }

/* The numbers of both lists, or those of the first that are not in the second; all in order. How many. */
static int64_t merge(int64_t *x, int64_t n, const int64_t *y, int64_t m, int both) {
    int64_t kept = 0;
    for (int64_t i = 0, j = 0; i < n; i++) {
        while (j < m && y[j] < x[i]) j++;
        if ((j < m && y[j] == x[i]) == both) x[kept++] = x[i];
    }
    return kept;
}

/* A new conjunction of what these rows share, instead of it. */
static int64_t replace(Sharing *s, const int64_t *rows, int64_t n, const int64_t *shared, int64_t m) {
    int64_t new = s->first + s->at.n;
    for (int64_t i = 0; i < n; i++) {
        int64_t left = merge(row(s, rows[i]), s->size.at[rows[i]], shared, m, 0);
        row(s, rows[i])[left] = new;
        s->size.at[rows[i]] = left + 1;
    }
    push(&s->at, s->pool.n);
    push(&s->size, m);
    push(&s->wide, 1);
    push(&s->kinds, AND);
    append(&s->pool, shared, m);
    return new;
}

/* For each child, the rows that have it, of those from the shortest to the longest. */
static void find_places(Sharing *s, int64_t shortest, int64_t longest) {
    s->place_at.n = s->places.n = 0;
    int64_t nodes = s->first + s->at.n, *ends = zeros(&s->place_at, nodes + 2) + 1;
    for (int turn = 0; turn < 2; turn++) { /* count, then fill */
        for (int64_t i = 0; i < s->at.n; i++) {
            if (!s->wide.at[i] || s->size.at[i] < shortest || s->size.at[i] > longest) continue;
            for (int64_t *c = row(s, i), *end = c + s->size.at[i]; c < end; c++)
                if (turn) s->places.at[ends[*c]++] = i;
                else ends[*c + 1]++;
        }
        if (turn) break;
        for (int64_t c = 0; c < nodes; c++) ends[c + 1] += ends[c];
        extend(&s->places, ends[nodes]);
    }
}

static void share_alike(Sharing *s) {
    find_places(s, 0, INT64_MAX);
    int64_t *at = s->place_at.at, nodes = s->first + s->at.n;
    s->alike.pool.n = s->alike.starts.n = s->classes.n = 0;
    for (int64_t c = 0; c < nodes; c++)
        if (at[c + 1] - at[c] > 1) {
            push(&s->classes, find(&s->alike, s->places.at + at[c], at[c + 1] - at[c], 1) << 32 | c);
        }
    sort(s->classes.at, s->classes.n);
    for (int64_t i = 0, end; i < s->classes.n; i = end) {
        int64_t class = s->classes.at[i] >> 32, n = length(&s->alike, class);
        s->shared.n = 0;
        for (end = i; end < s->classes.n && s->classes.at[end] >> 32 == class; end++)
            push(&s->shared, s->classes.at[end] & UINT32_MAX);
        if (n * s->shared.n > n + s->shared.n) replace(s, sequence(&s->alike, class), n, s->shared.at, s->shared.n);
    }
}

static void count_pairs(Sharing *s) {
    find_places(s, 3, PAIRS);
    int64_t nodes = s->first + s->at.n, *at = s->place_at.at;
    for (int64_t c = 0; c < nodes; c++) {
        push(&s->owner_at, at[c]);
        push(&s->owners, at[c + 1] - at[c]);
    }
    append(&s->owner_pool, s->places.at, s->places.n);
    zeros(&s->seen, nodes);
    zeros(&s->beside, nodes);
    for (int64_t i = 0; i < s->at.n; i++) {
        int64_t n = s->size.at[i], *c = row(s, i);
        if (!s->wide.at[i] || n < 3 || n > PAIRS) continue;
        s->operations += n * n / 2;
        s->others.n = 0;
        for (int64_t j = 0; j < n; j++)
            if (s->owners.at[c[j]] > 2) push(&s->others, c[j]);
        for (int64_t j = 0; j < s->others.n; j++)
            for (int64_t k = j + 1; k < s->others.n; k++) {
                int64_t both[] = {s->others.at[j], s->others.at[k]}, number = find(&s->pairs, both, 2, 1);
                if (number == s->counts.n) push(&s->counts, 0);
                s->counts.at[number]++;
            }
    }
    for (int64_t i = 0; i < s->counts.n; i++)
        if (s->counts.at[i] > 2) heap_push(&s->heap, -s->counts.at[i], sequence(&s->pairs, i)[0], sequence(&s->pairs, i)[1]);
}

/* The pair that most rows share, with all else that these share. */
static void share_pair(Sharing *s) {
    int64_t best[3];
    heap_pop(&s->heap, best);
    int64_t a = best[1], b = best[2];
    s->rows.n = s->shared.n = 0;
    append(&s->rows, s->owner_pool.at + s->owner_at.at[a], s->owners.at[a]);
    int64_t n = s->rows.n = merge(s->rows.at, s->rows.n, s->owner_pool.at + s->owner_at.at[b], s->owners.at[b], 1);
    if (n < 3) return;
    if (n < -best[0]) {
        heap_push(&s->heap, -n, a, b);
        return;
    }
    append(&s->shared, row(s, s->rows.at[0]), s->size.at[s->rows.at[0]]);
    for (int64_t i = 0; i < n; i++) {
        int64_t r = s->rows.at[i];
        s->operations += s->size.at[r];
        s->shared.n = merge(s->shared.at, s->shared.n, row(s, r), s->size.at[r], 1);
    }
    int64_t new = replace(s, s->rows.at, n, s->shared.at, s->shared.n), stamp = ++s->stamp;
    for (int64_t i = 0; i < s->shared.n; i++) {
        int64_t c = s->shared.at[i];
        s->owners.at[c] = merge(s->owner_pool.at + s->owner_at.at[c], s->owners.at[c], s->rows.at, n, 0);
    }
    push(&s->owner_at, s->owner_pool.n);
    push(&s->owners, n);
    append(&s->owner_pool, s->rows.at, n);
    push(&s->seen, 0);
    push(&s->beside, 0);
    s->others.n = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t *c = row(s, s->rows.at[i]), *end = c + s->size.at[s->rows.at[i]];
        for (; c < end; c++) {
            if (*c == new) continue;
            if (s->seen.at[*c] != stamp) {
                s->seen.at[*c] = stamp;
                s->beside.at[*c] = 0;
                push(&s->others, *c);
            }
            s->beside.at[*c]++;
        }
    }
    for (int64_t i = 0; i < s->others.n; i++)
        if (s->beside.at[s->others.at[i]] > 2) heap_push(&s->heap, -s->beside.at[s->others.at[i]], s->others.at[i], new);
}

static void rebuild(Sharing *s, int64_t *root) {
    Graph *g = &s->graph;
    int64_t *number = extend(&s->number, s->first + s->at.n), missing = INT64_MIN;
    for (int64_t i = 0; i < s->number.n; i++) number[i] = i < s->first ? i : missing;
    for (int64_t node = s->first; node < s->old; node++) {
        s->stack.n = 0;
        push(&s->stack, node);
        while (s->stack.n) { /* new nodes come before the first that has them */
            int64_t before = s->stack.n, top = s->stack.at[before - 1] - s->first, n = s->size.at[top], *c = row(s, top);
            for (int64_t i = 0; i < n; i++)
                if (c[i] >= s->old && number[c[i]] == missing) push(&s->stack, c[i]);
            if (s->stack.n > before) {
                sort(s->stack.at + before, s->stack.n - before);
                continue;
            }
            begin(g, s->kinds.at[top]);
            for (int64_t i = 0; i < n; i++) push(&g->parts, number[c[i]]);
            number[top + s->first] = made(g);
            s->stack.n--;
        }
    }
    *root = number[s->old - 1];
    if (*root >= g->literals) finish(g, *root);
}
