/* Lists that grow, tables of sequences of numbers, and the nodes of a circuit, of which equal ones are one. */

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { AND, OR };
enum { TRUE = -1, FALSE = -2 };

static _Thread_local jmp_buf full; /* where to go when there is no memory */

typedef struct {
    int64_t *at, n, room;
} Numbers;

/* Room for more numbers at the end, which count from now on; the first of them. */
static int64_t *extend(Numbers *list, int64_t more) {
    if (list->n + more > list->room) {
        int64_t room = 2 * (list->n + more) + 8;
        int64_t *at = realloc(list->at, room * sizeof *at);
        if (!at) longjmp(full, 1);
        list->at = at, list->room = room;
    }
    list->n += more;
    return list->at + list->n - more;
}

static inline void push(Numbers *list, int64_t x) { *extend(list, 1) = x; }

/* So many zeros at the end. */
static int64_t *zeros(Numbers *list, int64_t more) {
    int64_t *first = extend(list, more);
    if (more > 0) memset(first, 0, more * sizeof *first);
    return first;
}

static void append(Numbers *list, const int64_t *x, int64_t n) {
    int64_t *first = extend(list, n);
    if (n > 0) memcpy(first, x, n * sizeof *x);
}

static void release(Numbers *lists, int64_t count) {
    for (int64_t i = 0; i < count; i++) free(lists[i].at);
}

static void sort(int64_t *x, int64_t n) {
    int64_t gap = 1;
    while (n > 24 && gap < n / 3) gap = 3 * gap + 1;
    for (; gap; gap /= 3)
        for (int64_t i = gap; i < n; i++) {
            int64_t y = x[i], j = i;
            for (; j >= gap && x[j - gap] > y; j -= gap) x[j] = x[j - gap];
            x[j] = y;
        }
}

/* ---- a heap of triples, the smallest first ---- */

static inline int less(const int64_t *a, const int64_t *b) {
    return a[0] != b[0] ? a[0] < b[0] : a[1] != b[1] ? a[1] < b[1] : a[2] < b[2];
}

static inline void swap(int64_t *a, int64_t *b) {
    for (int i = 0; i < 3; i++) {
        int64_t x = a[i];
        a[i] = b[i], b[i] = x;
    }
}

static void heap_push(Numbers *heap, int64_t a, int64_t b, int64_t c) {
    int64_t *x = extend(heap, 3), i = heap->n / 3 - 1;
    x[0] = a, x[1] = b, x[2] = c;
    for (x = heap->at; i && less(x + 3 * i, x + 3 * ((i - 1) / 2)); i = (i - 1) / 2)
        swap(x + 3 * i, x + 3 * ((i - 1) / 2));
}

static void heap_pop(Numbers *heap, int64_t *smallest) {
    int64_t *x = heap->at, n = heap->n / 3 - 1, i = 0, child;
    memcpy(smallest, x, 3 * sizeof *x);
    memmove(x, x + 3 * n, 3 * sizeof *x);
    heap->n -= 3;
    for (; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && less(x + 3 * child + 3, x + 3 * child)) child++;
        if (!less(x + 3 * child, x + 3 * i)) break;
        swap(x + 3 * child, x + 3 * i);
    }
}

/* ---- sequences, each once, in the order in which they came ---- */

typedef struct {
    Numbers pool, starts, table;
} Sequences;

static inline int64_t count(const Sequences *s) { return s->starts.n ? s->starts.n - 1 : 0; }
static inline int64_t *sequence(const Sequences *s, int64_t i) { return s->pool.at + s->starts.at[i]; }
static inline int64_t length(const Sequences *s, int64_t i) { return s->starts.at[i + 1] - s->starts.at[i]; }

static inline uint64_t hash(const int64_t *x, int64_t n) {
    uint64_t h = n;
    for (int64_t i = 0; i < n; i++) h = (h ^ (uint64_t)x[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return h;
}

static void rehash(Sequences *s, int64_t size) {
    s->table.n = 0;
    zeros(&s->table, size);
    for (int64_t i = 0; i < count(s); i++) {
        uint64_t h = hash(sequence(s, i), length(s, i));
        while (s->table.at[h & (size - 1)]) h++;
        s->table.at[h & (size - 1)] = i + 1;
    }
}

/* The number of a sequence, which is not in the pool; -1 if it is not there and not to be added. */
static int64_t find(Sequences *s, const int64_t *x, int64_t n, int add) {
    if (!s->starts.n) push(&s->starts, 0), rehash(s, 64);
    uint64_t h = hash(x, n), mask = s->table.n - 1;
    for (int64_t i; (i = s->table.at[h & mask]); h++)
        if (length(s, i - 1) == n && !memcmp(sequence(s, i - 1), x, n * sizeof *x)) return i - 1;
    if (!add) return -1;
    append(&s->pool, x, n);
    push(&s->starts, s->pool.n);
    s->table.at[h & mask] = count(s);
    if (2 * count(s) > s->table.n) rehash(s, 4 * s->table.n);
    return count(s) - 1;
}

/* ---- nodes: a kind and children; their numbers come after those of the literals ---- */

typedef struct {
    Sequences nodes;
    Numbers parts, kinds, offsets, children; /* what a node is made of; a finished circuit */
    int64_t literals;
} Graph;

static inline int kind_of(const Graph *g, int64_t node) { return *sequence(&g->nodes, node - g->literals); }
static inline int64_t *children_of(const Graph *g, int64_t node) { return sequence(&g->nodes, node - g->literals) + 1; }
static inline int64_t degree(const Graph *g, int64_t node) { return length(&g->nodes, node - g->literals) - 1; }

/* Begin a node: push its children to `parts`, then call `made`. */
static inline void begin(Graph *g, int kind) {
    g->parts.n = 0;
    push(&g->parts, kind);
}

static int64_t made(Graph *g) {
    int64_t *x = g->parts.at, kept = 1, neutral = x[0] == AND ? TRUE : FALSE, absorbing = x[0] == AND ? FALSE : TRUE;
    for (int64_t i = 1; i < g->parts.n; i++) {
        if (x[i] == absorbing) return absorbing;
        if (x[i] != neutral) x[kept++] = x[i];
    }
    if (kept < 3) return kept == 2 ? x[1] : neutral;
    sort(x + 1, kept - 1);
    return g->literals + find(&g->nodes, x, kept, 1);
}

static int64_t pair(Graph *g, int kind, int64_t a, int64_t b) {
    begin(g, kind);
    push(&g->parts, a);
    push(&g->parts, b);
    return made(g);
}

/* The circuit below a node that is no leaf, without what it does not need. */
static void finish(Graph *g, int64_t root) {
    g->kinds.n = g->offsets.n = g->children.n = g->parts.n = 0;
    int64_t top = root - g->literals, *new = zeros(&g->parts, top + 1);
    new[top] = 1;
    for (int64_t i = top; i >= 0; i--)
        if (new[i])
            for (int64_t *c = sequence(&g->nodes, i) + 1; c < sequence(&g->nodes, i + 1); c++)
                if (*c >= g->literals) new[*c - g->literals] = 1;
    push(&g->offsets, 0);
    for (int64_t i = 0; i <= top; i++) {
        if (!new[i]) continue;
        new[i] = g->literals + g->kinds.n;
        int64_t *x = sequence(&g->nodes, i);
        push(&g->kinds, *x);
        for (int64_t *c = x + 1; c < sequence(&g->nodes, i + 1); c++)
            push(&g->children, *c < g->literals ? *c : new[*c - g->literals]);
        push(&g->offsets, g->children.n);
    }
}
