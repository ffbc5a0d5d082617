/* The compiler of clauses, as in _search.py and _shrinking.py: what is said there holds here, and every step is the
 * same one, so that the circuits and the counted operations are the same. It stops now and then, for Ctrl-C. */

#include "_tables.h"
#include "_searching.h"
#include "_sharing.h"

enum { MEMORY = -1, DONE, PAUSED, NODES };

/* ---- circuits ---- */

void graph_size(const Graph *g, int64_t *sizes) { sizes[0] = g->kinds.n, sizes[1] = g->children.n; }

void graph_take(const Graph *g, int8_t *kinds, int64_t *offsets, int64_t *children) {
    for (int64_t i = 0; i < g->kinds.n; i++) kinds[i] = g->kinds.at[i];
    memcpy(offsets, g->offsets.at, g->offsets.n * sizeof *offsets);
    memcpy(children, g->children.at, g->children.n * sizeof *children);
}

/* ---- the search ---- */

void search_free(Search *s) {
    release((Numbers *)s, offsetof(Search, variables) / sizeof(Numbers));
    release((Numbers *)&s->graph, offsetof(Graph, literals) / sizeof(Numbers));
    free(s);
}

/* Clauses and groups by the starts of their literals; `wide` as WIDE there. NULL without memory. */
Search *search_new(int64_t variables, int64_t clauses, int64_t groups, const int64_t *starts, const int64_t *literals,
                   const int64_t *allowed, int64_t wide) {
    Search *const s = calloc(1, sizeof *s);
    if (!s) return NULL;
    if (setjmp(full)) {
        search_free(s);
        return NULL;
    }
    int64_t n = clauses + groups;
    s->variables = variables, s->clauses = clauses, s->groups = groups;
    s->graph.literals = 2 * variables;
    append(&s->starts, starts, n + 1);
    append(&s->literals, literals, starts[n]);
    append(&s->allowed, allowed, groups);
    occurrences(s, 0, clauses, &s->clauses_of, &s->clauses_at);
    occurrences(s, clauses, n, &s->groups_of, &s->groups_at);
    s->value = zeros(&s->values, 2 * variables + 1) + variables;
    zeros(&s->held, n);
    zeros(&s->off, groups);
    for (int64_t k = 0; k < n; k++) push(&s->left, size_of(s, k));
    Numbers *by_variable[] = {&s->seen, &s->above, &s->score, &s->home, &s->renamed};
    for (int i = 0; i < 5; i++) zeros(by_variable[i], variables + 1);
    make_ranks(s, wide);
    for (int64_t k = 0; k < clauses; k++) push(&s->name_of, name_clause(s, k));
    zeros(&s->name_of, groups);
    for (int64_t g = groups - 1; g >= 0; g--)
        s->name_of.at[clauses + g] = name_group(s, clauses + g, allowed[g], ((int64_t)2 << size_of(s, clauses + g)) - 1);
    return s;
}

/* A clause or a group need not hold (+1), or must again (-1). */
void search_switch(Search *s, int64_t number, int group, int change) {
    (group ? s->off.at : s->held.at)[number] += change;
}

/* Begin with what must hold, and these literals. */
int search_begin(Search *s, const int64_t *literals, int64_t n) {
    if (setjmp(full)) return MEMORY;
    int lost = 0;
    s->operations += s->clauses + s->groups;
    s->queue.n = s->trail.n = s->frames.n = s->arena.n = 0;
    append(&s->queue, literals, n);
    for (int64_t k = 0; k < s->clauses; k++) {
        if (s->held.at[k]) continue;
        lost |= !size_of(s, k);
        if (size_of(s, k) == 1) push(&s->queue, s->literals.at[s->starts.at[k]]);
    }
    for (int64_t g = 0; g < s->groups; g++) {
        int64_t every, rest = residual(s, g, &every);
        lost |= !rest;
        force(s, g, rest, every);
    }
    if (lost || !assign(s)) {
        undo(s, 0);
        s->result = FALSE;
        return DONE;
    }
    int64_t size = 0, *row;
    for (int64_t k = 0; k < s->clauses; k++) size += !s->held.at[k];
    for (int64_t g = 0; g < s->groups; g++) size += !s->off.at[g];
    row = extend(&s->arena, 3 * size);
    for (int64_t k = 0; k < s->clauses + s->groups; k++) {
        if (k < s->clauses ? s->held.at[k] : s->off.at[k - s->clauses]) continue;
        row[0] = s->name_of.at[k], row[size] = k, row[2 * size] = 1;
        row++;
    }
    Frame f = {.size = size, .second = 1, .arena = s->arena.n};
    append(&s->frames, (int64_t *)&f, sizeof f / sizeof(int64_t));
    split(s, 0, size, top(s));
    return PAUSED;
}

/* Go on until so many operations are done, or there are more nodes. */
int search_go(Search *s, int64_t operations, int64_t nodes) {
    if (setjmp(full)) return MEMORY;
    while (s->operations <= operations) {
        Frame *f = top(s);
        if (!f->pending) {
            if (ascend(s)) return DONE;
            continue;
        }
        int64_t *entry = s->arena.at + f->table + 2 * --f->pending, part = entry[0], size = entry[1];
        int64_t number = find(&s->known, s->arena.at + part, size, 0);
        if (number >= 0) {
            deliver(s, f, s->known_nodes.at[number]);
            continue;
        }
        int64_t now = count(&s->graph.nodes) + count(&s->known);
        if (now > s->most) s->most = now;
        if (now > nodes) return NODES;
        descend(s, part, size);
    }
    return PAUSED;
}

/* About which part of the search is done. */
double search_progress(const Search *s) {
    double done = 0.0, width = 1.0;
    const Frame *f = (const Frame *)s->frames.at, *end = (const Frame *)(s->frames.at + s->frames.n);
    for (const Frame *first = f; f < end; f++) {
        if (f > first) {
            width /= 2;
            done += width * f->second;
        }
        if (f->count && f + 1 < end) {
            width /= f->count;
            done += width * (f->count - f->pending - 1);
        }
    }
    return done;
}

/* Operations so far, the most nodes and components at a time, and the last node found. */
void search_facts(const Search *s, int64_t *facts) {
    facts[0] = s->operations, facts[1] = s->most, facts[2] = s->result;
}

/* The circuit of cases that exclude each other; its root, if that is a leaf or a constant: then there is none. */
Graph *search_finish(Search *s, const int64_t *cases, int64_t n, int64_t *root) {
    if (setjmp(full)) return NULL;
    begin(&s->graph, OR);
    append(&s->graph.parts, cases, n);
    *root = made(&s->graph);
    if (*root >= s->graph.literals) finish(&s->graph, *root);
    return &s->graph;
}

/* ---- shrinking ---- */

void sharing_free(Sharing *s) {
    release((Numbers *)s, offsetof(Sharing, first) / sizeof(Numbers));
    release((Numbers *)&s->graph, offsetof(Graph, literals) / sizeof(Numbers));
    free(s);
}

/* A circuit to shrink. A node that only one node of its own kind has gives its children to that. */
Sharing *sharing_new(int64_t variables, int64_t nodes, const int8_t *kinds, const int64_t *offsets,
                     const int64_t *children) {
    Sharing *const s = calloc(1, sizeof *s);
    if (!s) return NULL;
    if (setjmp(full)) {
        sharing_free(s);
        return NULL;
    }
    s->first = s->graph.literals = 2 * variables;
    s->old = s->first + nodes;
    s->operations = offsets[nodes];
    int64_t *uses = zeros(&s->seen, s->old);
    for (int64_t i = 0; i < offsets[nodes]; i++) uses[children[i]]++;
    for (int64_t i = 0; i < nodes; i++) {
        push(&s->kinds, kinds[i]);
        push(&s->at, s->pool.n);
        for (int64_t j = offsets[i]; j < offsets[i + 1]; j++) {
            int64_t inner = children[j] - s->first;
            if (inner >= 0 && kinds[inner] == kinds[i] && uses[children[j]] == 1) {
                int64_t n = s->size.at[inner], *room = extend(&s->pool, n);
                memcpy(room, row(s, inner), n * sizeof *room);
                s->size.at[inner] = 0;
            } else {
                push(&s->pool, children[j]);
            }
        }
        push(&s->size, s->pool.n - s->at.at[i]);
    }
    for (int64_t i = 0; i < nodes; i++) {
        push(&s->wide, s->size.at[i] > 2 && kinds[i] == AND);
        if (s->wide.at[i]) sort(row(s, i), s->size.at[i]);
    }
    s->seen.n = 0;
    return s;
}

/* Go on until so many operations are done; the root where there is nothing left to do. */
int sharing_go(Sharing *s, int64_t operations, int64_t *root) {
    if (setjmp(full)) return MEMORY;
    if (s->phase == 1 && s->heap.n) {
        while (s->heap.n && s->operations <= operations) share_pair(s);
        return PAUSED;
    }
    if (s->phase == 0) {
        share_alike(s);
        count_pairs(s);
    } else if (s->phase == 1) {
        share_alike(s);
    } else {
        rebuild(s, root);
        return DONE;
    }
    s->phase++;
    return PAUSED;
}

Graph *sharing_graph(Sharing *s, int64_t *operations) {
    *operations = s->operations;
    return &s->graph;
}
