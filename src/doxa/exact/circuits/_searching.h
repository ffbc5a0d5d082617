/* The search: see _search.py. Constraints are numbered, clauses first, then groups; all lists are of 64 bits. */

enum { UNIT = 22, COPIED = 8 };

typedef struct {
    int64_t part, size;             /* where the part is, and how many constraints it has */
    int64_t shape, wide;            /* where its shape is, of how many variables; none if that is 0 */
    int64_t variable, mark, arena;  /* the decision, how long the trail was, and the arena */
    int64_t pending, table, count;  /* parts still to compile, where they are named, and how many there were */
    int64_t parts, done;            /* where compiled parts are, and how many */
    int64_t second, first_node;
} Frame;

typedef struct {
    /* Lists first: they are released together. */
    Numbers literals, starts, allowed;             /* of constraints */
    Numbers clauses_of, clauses_at, groups_of, groups_at; /* by literal */
    Numbers values, left, held, off, rank;         /* held: true literals of a clause or a group */
    Numbers trail, queue, frames, arena, roots;
    Numbers name_of, matters, known_nodes;
    Numbers ours, whose, often, home_of, sizes, next; /* while a part is split */
    Numbers name_seen, name_place;                 /* by content */
    Numbers seen, above, score, home, scope; /* by variable */
    Numbers samples, sample_at, renamed, copy_seen, copies, stack, scratch;
    Sequences names, known, shapes;
    int64_t variables, clauses, groups, stamp, result;
    int64_t operations, most; /* counted; nodes and components */
    int64_t *value;           /* by literal, negative ones before it */
    Graph graph;
} Search;

static inline Frame *top(Search *s) { return (Frame *)(s->frames.at + s->frames.n) - 1; }
static inline int64_t size_of(const Search *s, int64_t k) { return s->starts.at[k + 1] - s->starts.at[k]; }
static inline int64_t weight(int64_t n) { return (int64_t)1 << (n < UNIT ? UNIT - n : 0); }
static inline int64_t leaf(int64_t x) { return x > 0 ? 2 * x - 2 : -2 * x - 1; }
static inline int64_t var(int64_t x) { return x < 0 ? -x : x; }

/* ---- what is left of constraints ---- */

/* The number of the content in `scratch`: 0 and the literals of a clause, or what a group allows and its literals. */
static int64_t name(Search *s, int64_t matters) {
    int64_t number = find(&s->names, s->scratch.at, s->scratch.n, 1);
    if (number == s->matters.n) {
        push(&s->matters, matters);
        push(&s->name_seen, 0);
        push(&s->name_place, 0);
    }
    return number;
}

static void open_literals(Search *s, int64_t k, int64_t head) {
    s->scratch.n = 0;
    push(&s->scratch, head);
    for (int64_t i = s->starts.at[k]; i < s->starts.at[k + 1]; i++)
        if (!s->value[s->literals.at[i]]) push(&s->scratch, s->literals.at[i]);
}

static int64_t name_clause(Search *s, int64_t k) {
    open_literals(s, k, 0);
    return name(s, weight(s->scratch.n - 1));
}

static int64_t name_group(Search *s, int64_t k, int64_t rest, int64_t every) {
    open_literals(s, k, rest);
    int64_t *x = s->scratch.at, size = s->scratch.n - 1;
    int negated = rest == every >> 1;
    if (rest == every - 1 || negated) {
        x[0] = 0;
        for (int64_t i = 1; negated && i <= size; i++) x[i] = -x[i];
        sort(x + 1, size);
    } else if (x[1] < 0) {
        x[0] = 0;
        for (int64_t i = 0; i <= size; i++) x[0] |= (rest >> i & 1) << (size - i);
        for (int64_t i = 1; i <= size; i++) x[i] = -x[i];
    }
    return name(s, (int64_t)1 << (UNIT - 2));
}

static int64_t residual(Search *s, int64_t g, int64_t *every) {
    int64_t k = s->clauses + g;
    *every = ((int64_t)2 << s->left.at[k]) - 1;
    return s->off.at[g] ? *every : s->allowed.at[g] >> s->held.at[k] & *every;
}

static void force(Search *s, int64_t g, int64_t rest, int64_t every) {
    if (rest == every || (rest != 1 && rest != (every + 1) >> 1)) return;
    int64_t k = s->clauses + g;
    s->operations += size_of(s, k);
    for (int64_t i = s->starts.at[k]; i < s->starts.at[k + 1]; i++) {
        int64_t x = s->literals.at[i];
        if (!s->value[x]) push(&s->queue, rest == 1 ? -x : x);
    }
}

/* Make the literals of the queue true, and what follows from them; whether there is no conflict. */
static int assign(Search *s) {
    int64_t work = 0, *left = s->left.at, *held = s->held.at, *value = s->value;
    int conflict = 0;
    for (int64_t i = 0; i < s->queue.n && !conflict; i++) {
        int64_t x = s->queue.at[i];
        if (value[x]) {
            conflict = value[x] < 0;
            continue;
        }
        value[x] = 1, value[-x] = -1;
        push(&s->trail, x);
        int64_t *c = s->clauses_at.at + s->variables, *g = s->groups_at.at + s->variables;
        work += c[x + 1] - c[x] + c[-x + 1] - c[-x] + g[x + 1] - g[x] + g[-x + 1] - g[-x];
        for (int64_t j = c[x]; j < c[x + 1]; j++) held[s->clauses_of.at[j]]++;
        for (int64_t j = c[-x]; j < c[-x + 1]; j++) {
            int64_t k = s->clauses_of.at[j];
            if (--left[k] > 1 || held[k]) continue;
            if (left[k]) {
                int64_t *y = s->literals.at + s->starts.at[k];
                while (value[*y]) y++;
                push(&s->queue, *y);
            } else {
                conflict = 1;
            }
        }
        for (int64_t j = g[x]; j < g[x + 1]; j++) held[s->clauses + s->groups_of.at[j]]++;
        for (int sign = 0; sign < 2; sign++)
            for (int64_t y = sign ? -x : x, j = g[y]; j < g[y + 1]; j++) left[s->clauses + s->groups_of.at[j]]--;
        for (int sign = 0; sign < 2; sign++)
            for (int64_t y = sign ? -x : x, j = g[y]; j < g[y + 1]; j++) {
                int64_t every, rest = residual(s, s->groups_of.at[j], &every);
                conflict |= rest == 0;
                force(s, s->groups_of.at[j], rest, every);
            }
    }
    s->operations += work;
    return !conflict;
}

static void undo(Search *s, int64_t mark) {
    int64_t *left = s->left.at, *held = s->held.at;
    for (int64_t i = mark; i < s->trail.n; i++) {
        int64_t x = s->trail.at[i], *c = s->clauses_at.at + s->variables, *g = s->groups_at.at + s->variables;
        s->value[x] = s->value[-x] = 0;
        for (int64_t j = c[x]; j < c[x + 1]; j++) held[s->clauses_of.at[j]]--;
        for (int64_t j = c[-x]; j < c[-x + 1]; j++) left[s->clauses_of.at[j]]++;
        for (int64_t j = g[x]; j < g[x + 1]; j++) {
            held[s->clauses + s->groups_of.at[j]]--;
            left[s->clauses + s->groups_of.at[j]]++;
        }
        for (int64_t j = g[-x]; j < g[-x + 1]; j++) left[s->clauses + s->groups_of.at[j]]++;
    }
    s->trail.n = mark;
}

/* ---- parts: in the arena, the names of their contents in order, their constraints, and how often each is there ---- */

static int64_t root_of(int64_t *above, int64_t v) {
    while (above[v] != v) v = above[v] = above[above[v]];
    return v;
}

/* What is left of a part, in parts that share no variable: the smallest last. */
static void split(Search *s, int64_t part, int64_t size, Frame *f) {
    int64_t stamp = ++s->stamp;
    s->ours.n = s->whose.n = s->often.n = 0;
    for (int64_t i = 0; i < size; i++) {
        int64_t number = s->arena.at[part + i], k = s->arena.at[part + size + i], every;
        if (k < s->clauses) {
            if (s->held.at[k]) continue;
            if (s->left.at[k] != length(&s->names, number) - 1) number = name_clause(s, k);
        } else if (s->left.at[k] != length(&s->names, number) - 1) {
            int64_t rest = residual(s, k - s->clauses, &every);
            if (rest == every) continue;
            number = name_group(s, k, rest, every);
        }
        int64_t often = s->arena.at[part + 2 * size + i];
        if (s->name_seen.at[number] == stamp) {
            int64_t place = s->name_place.at[number];
            s->whose.at[place] = k;
            s->often.at[place] += often;
        } else {
            s->name_seen.at[number] = stamp;
            s->name_place.at[number] = s->ours.n;
            push(&s->ours, number);
            push(&s->whose, k);
            push(&s->often, often);
        }
    }
    s->operations += size + s->ours.n;
    sort(s->ours.at, s->ours.n);
    int64_t *above = s->above.at, *seen = s->seen.at, parts = 0;
    for (int64_t i = 0; i < s->ours.n; i++) {
        int64_t *x = sequence(&s->names, s->ours.at[i]) + 1, *end = sequence(&s->names, s->ours.at[i] + 1), first = 0;
        for (; x < end; x++) {
            int64_t v = var(*x);
            if (seen[v] != stamp) {
                seen[v] = stamp;
                above[v] = first ? first : v;
                s->home.at[v] = -1;
                first = above[v];
            } else if (first) {
                above[root_of(above, v)] = first;
            } else {
                first = root_of(above, v);
            }
        }
    }
    /* Which part each content is in, the parts in the order of their first contents; then by size. */
    s->home_of.n = s->sizes.n = 0;
    for (int64_t i = 0; i < s->ours.n; i++) {
        int64_t *home = s->home.at + root_of(above, var(sequence(&s->names, s->ours.at[i])[1]));
        if (*home < 0) *home = parts++, push(&s->sizes, 0);
        s->sizes.at[*home]++;
        push(&s->home_of, *home);
    }
    s->queue.n = 0;
    for (int64_t p = 0; p < parts; p++) push(&s->queue, ((int64_t)INT32_MAX - s->sizes.at[p]) << 31 | p);
    sort(s->queue.at, parts);
    f->pending = f->count = parts;
    f->done = 0;
    f->table = s->arena.n;
    f->parts = f->table + 2 * parts;
    zeros(&s->arena, 3 * parts); /* where each is, and its size; then results */
    s->next.n = 0;
    zeros(&s->next, parts);
    for (int64_t i = 0; i < parts; i++) {
        int64_t p = s->queue.at[i] & INT32_MAX, at = s->arena.n;
        extend(&s->arena, 3 * s->sizes.at[p]);
        s->arena.at[f->table + 2 * i] = s->next.at[p] = at;
        s->arena.at[f->table + 2 * i + 1] = s->sizes.at[p];
    }
    for (int64_t i = 0; i < s->ours.n; i++) {
        int64_t p = s->home_of.at[i], n = s->sizes.at[p], place = s->name_place.at[s->ours.at[i]];
        int64_t *at = s->arena.at + s->next.at[p]++;
        at[0] = s->ours.at[i], at[n] = s->whose.at[place], at[2 * n] = s->often.at[place];
    }
}

/* ---- decisions ---- */

/* How much each variable of a part matters, in `score`; the variables, in order, in `scope`. */
static void scores(Search *s, int64_t part, int64_t size) {
    int64_t stamp = ++s->stamp;
    s->scope.n = 0;
    for (int64_t i = 0; i < size; i++) {
        int64_t number = s->arena.at[part + i], matters = s->matters.at[number] * s->arena.at[part + 2 * size + i];
        for (int64_t *x = sequence(&s->names, number) + 1; x < sequence(&s->names, number + 1); x++) {
            int64_t v = var(*x);
            if (s->seen.at[v] != stamp) {
                s->seen.at[v] = stamp;
                s->score.at[v] = 0;
                push(&s->scope, v);
            }
            s->score.at[v] += matters;
        }
    }
    s->operations += s->scope.n;
}

static int64_t choose(Search *s) {
    int64_t best = 0, most = -1;
    for (int64_t i = 0; i < s->scope.n; i++) {
        int64_t v = s->scope.at[i], score = s->score.at[v];
        int64_t key = (64 - __builtin_clzll(score)) * (s->variables + 1) + s->rank.at[v];
        if (key > most) most = key, best = v;
    }
    return best;
}

/* The node below which other leaves take the place of these: those of `renamed`. */
static int64_t copy(Search *s, int64_t root) {
    Graph *g = &s->graph;
    int64_t stamp = ++s->stamp, old = count(&g->nodes), *new;
    if (root < 0) return root;
    if (s->copies.n < old) {
        zeros(&s->copy_seen, old - s->copies.n);
        extend(&s->copies, old - s->copies.n);
    }
    new = s->renamed.at;
#define COPY(node) \
    ((node) < g->literals ? leaf((node) & 1 ? -new[((node) >> 1) + 1] : new[((node) >> 1) + 1]) \
                          : s->copies.at[(node) - g->literals])
    s->stack.n = 0;
    push(&s->stack, root);
    while (s->stack.n) {
        int64_t node = s->stack.at[s->stack.n - 1], before = s->stack.n;
        if (node < g->literals || s->copy_seen.at[node - g->literals] == stamp) {
            s->stack.n--;
            continue;
        }
        int64_t *c = children_of(g, node), n = degree(g, node);
        for (int64_t i = 0; i < n; i++)
            if (c[i] >= g->literals && s->copy_seen.at[c[i] - g->literals] != stamp) push(&s->stack, c[i]);
        if (s->stack.n > before) continue;
        s->operations += n;
        begin(g, kind_of(g, node));
        for (int64_t i = 0; i < n; i++) push(&g->parts, COPY(c[i]));
        s->copies.at[node - g->literals] = made(g);
        s->copy_seen.at[node - g->literals] = stamp;
    }
    return COPY(root);
#undef COPY
}

/* A copy of the node of a part that is the same but for the names of variables, in the same order; else 0 and no node.
 * The shape is at the end of the arena: the variables, then how many contents there are and what variables matter. */
static int copied(Search *s, int64_t part, int64_t size, int64_t shape, int64_t wide, int64_t *node) {
    int64_t number = find(&s->shapes, s->arena.at + shape + wide, wide + 1, 0);
    if (number < 0) return 0;
    int64_t *sample = s->samples.at + s->sample_at.at[number], stamp = ++s->stamp;
    for (int64_t i = 0; i < wide; i++) s->renamed.at[sample[1 + i]] = s->arena.at[shape + i];
    for (int64_t i = 0; i < size; i++) s->name_seen.at[s->arena.at[part + i]] = stamp;
    for (int64_t i = 0; i < size; i++) {
        int64_t theirs = sample[1 + wide + i], *x = sequence(&s->names, theirs), n = length(&s->names, theirs);
        s->scratch.n = 0;
        push(&s->scratch, x[0]);
        for (int64_t j = 1; j < n; j++) push(&s->scratch, x[j] > 0 ? s->renamed.at[x[j]] : -s->renamed.at[-x[j]]);
        int64_t mine = find(&s->names, s->scratch.at, n, 0);
        if (mine < 0 || s->name_seen.at[mine] != stamp) return 0;
    }
    *node = copy(s, sample[0]);
    return 1;
}

static void branch(Search *s, Frame *f, int64_t literal) {
    s->queue.n = 0;
    push(&s->queue, literal);
    if (assign(s)) {
        split(s, f->part, f->size, f);
    } else {
        f->pending = f->count = 0;
        f->table = s->arena.n;
        f->parts = s->arena.n;
        f->done = 1;
        push(&s->arena, FALSE);
    }
}

static void deliver(Search *s, Frame *f, int64_t result) {
    s->arena.at[f->parts + f->done++] = result;
    if (result == FALSE) f->pending = 0;
}

/* Either branch of a decision, with what both have taken out. */
static int64_t join(Search *s, int64_t first, int64_t second) {
    Graph *g = &s->graph;
    if (first < 0 || second < 0) return pair(g, OR, first, second);
    Numbers *list[3] = {&s->ours, &s->whose, &s->often}; /* what both have, only the first, only the second */
    for (int i = 0; i < 3; i++) list[i]->n = 0;
    int64_t *x[2], n[2], node[2] = {first, second}, i = 0, j = 0;
    for (int side = 0; side < 2; side++) {
        int wide = node[side] >= g->literals && kind_of(g, node[side]) == AND;
        x[side] = wide ? children_of(g, node[side]) : &node[side];
        n[side] = wide ? degree(g, node[side]) : 1;
    }
    while (i < n[0] || j < n[1]) {
        if (i < n[0] && j < n[1] && x[0][i] == x[1][j]) {
            push(list[0], x[0][i++]), j++;
        } else if (j == n[1] || (i < n[0] && x[0][i] < x[1][j])) {
            push(list[1], x[0][i++]);
        } else {
            push(list[2], x[1][j++]);
        }
    }
    if (!list[0]->n) return pair(g, OR, first, second);
    int64_t rest[2];
    for (int side = 0; side < 2; side++) {
        begin(g, AND);
        append(&g->parts, list[1 + side]->at, list[1 + side]->n);
        rest[side] = made(g);
    }
    int64_t either = TRUE;
    if (rest[0] >= g->literals || rest[1] >= g->literals) either = pair(g, OR, rest[0], rest[1]);
    begin(g, AND);
    append(&g->parts, list[0]->at, list[0]->n);
    push(&g->parts, either);
    return made(g);
}

/* A part that is not known yet: a copy, or a new frame. */
static void descend(Search *s, int64_t part, int64_t size) {
    int64_t mark = s->arena.n, wide = 0, node;
    scores(s, part, size);
    if (size >= COPIED) {
        wide = s->scope.n;
        sort(s->scope.at, wide);
        append(&s->arena, s->scope.at, wide);
        push(&s->arena, size);
        for (int64_t i = 0; i < wide; i++) push(&s->arena, s->score.at[s->scope.at[i]]);
        if (copied(s, part, size, mark, wide, &node)) {
            s->arena.n = mark;
            find(&s->known, s->arena.at + part, size, 1);
            push(&s->known_nodes, node);
            deliver(s, top(s), node);
            return;
        }
    }
    Frame f = {.part = part, .size = size, .shape = mark, .wide = wide, .variable = choose(s), .mark = s->trail.n,
               .arena = s->arena.n};
    append(&s->frames, (int64_t *)&f, sizeof f / sizeof(int64_t));
    branch(s, top(s), f.variable);
}

/* The current branch is complete; whether the search is. */
static int ascend(Search *s) {
    Graph *g = &s->graph;
    Frame *f = top(s);
    int64_t node = FALSE, *parts = s->arena.at + f->parts;
    if (!f->done || parts[f->done - 1] != FALSE) {
        begin(g, AND);
        for (int64_t i = f->mark; i < s->trail.n; i++) push(&g->parts, leaf(s->trail.at[i]));
        append(&g->parts, parts, f->done);
        node = made(g);
    }
    undo(s, f->mark);
    s->arena.n = f->arena;
    if (s->frames.n * sizeof(int64_t) == sizeof(Frame)) {
        s->frames.n = 0;
        s->result = node;
        return 1;
    }
    if (!f->second) {
        f->second = 1;
        f->first_node = node;
        branch(s, f, -f->variable);
        return 0;
    }
    node = join(s, f->first_node, node);
    find(&s->known, s->arena.at + f->part, f->size, 1);
    push(&s->known_nodes, node);
    if (f->wide) {
        int64_t before = count(&s->shapes);
        if (find(&s->shapes, s->arena.at + f->shape + f->wide, f->wide + 1, 1) == before) {
            push(&s->sample_at, s->samples.n);
            push(&s->samples, node);
            append(&s->samples, s->arena.at + f->shape, f->wide);
            append(&s->samples, s->arena.at + f->part, f->size);
        }
    }
    s->arena.n = f->shape;
    s->frames.n -= sizeof(Frame) / sizeof(int64_t);
    deliver(s, top(s), node);
    return 0;
}

/* ---- before the search ---- */

/* By maximum cardinality search: see `ranked`. */
static void make_ranks(Search *s, int64_t wide) {
    int64_t n = s->variables, after = n, least[3], *ranks = zeros(&s->rank, n + 1), *before = s->score.at;
    Numbers *heap = &s->queue;
    heap->n = 0;
    for (int64_t v = 1; v <= n; v++) heap_push(heap, 0, v, 0);
    while (heap->n) {
        heap_pop(heap, least);
        int64_t v = least[1], stamp = ++s->stamp;
        if (ranks[v] || -least[0] != before[v]) continue;
        ranks[v] = after--;
        for (int way = 0; way < 4; way++) { /* clauses and groups, with the variable and with its negation */
            int64_t *at = (way & 1 ? s->groups_at.at : s->clauses_at.at) + n + (way & 2 ? v : -v);
            int64_t *of = way & 1 ? s->groups_of.at : s->clauses_of.at;
            for (int64_t j = at[0]; j < at[1]; j++) {
                int64_t k = of[j] + (way & 1 ? s->clauses : 0);
                if (size_of(s, k) > wide) continue;
                for (int64_t i = s->starts.at[k]; i < s->starts.at[k + 1]; i++) {
                    int64_t other = var(s->literals.at[i]);
                    if (ranks[other] || s->seen.at[other] == stamp) continue;
                    s->seen.at[other] = stamp;
                    heap_push(heap, -++before[other], other, 0);
                }
            }
        }
    }
}

/* Where the constraints of each literal are, from the first to before the last. */
static void occurrences(Search *s, int64_t first, int64_t last, Numbers *of, Numbers *at) {
    int64_t n = s->variables, *ends = zeros(at, 2 * n + 2) + n;
    for (int64_t i = s->starts.at[first]; i < s->starts.at[last]; i++) ends[s->literals.at[i] + 1]++;
    for (int64_t x = -n; x <= n; x++) ends[x + 1] += ends[x];
    zeros(of, ends[n + 1]);
    s->queue.n = 0;
    append(&s->queue, at->at, 2 * n + 2);
    for (int64_t k = first; k < last; k++)
        for (int64_t i = s->starts.at[k]; i < s->starts.at[k + 1]; i++)
            of->at[s->queue.at[s->literals.at[i] + n]++] = k - first;
}
