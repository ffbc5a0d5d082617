/* The cheapest paths on grids with 8 neighbours: LANES maps side by side, so that the compiler can use vectors.

   rest[v] is the cost of the cheapest way from cell v to the goal, v included. Bellman's equation,

       rest[v] = cost[v] + min over the neighbours u of v of rest[u],        rest[goal] = cost[goal],

   is iterated in place, back and forth over the grid, until it changes nothing. Adding is monotone in floating point
   too, so the fixed point does not depend on the order: it is the one that the PyTorch version finds, to the bit. */

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define LANES 8

/* Bellman's equation in one row, from its right end to the left (step -1) or back; says whether anything changed. */
static int update(int64_t width, const double *restrict cost, double *restrict rest, int64_t step)
{
    int64_t side = (width + 2) * LANES;
    double gains[LANES] = {0};
    for (int64_t i = 0; i < width; i++) {
        int64_t at = (step > 0 ? i : width - 1 - i) * LANES;
        double *here = rest + at;
#pragma GCC ivdep
        for (int64_t l = 0; l < LANES; l++) {
            double a = here[l - side - LANES], b = here[l - side], c = here[l - side + LANES], d = here[l - LANES];
            double e = here[l + LANES], f = here[l + side - LANES], g = here[l + side], h = here[l + side + LANES];
            a = a < b ? a : b;
            f = f < g ? f : g;
            c = c < h ? c : h;
            a = a < c ? a : c;
            a = a < f ? a : f;
            a = a < d ? a : d; /* d or e was written just before: it joins last, so that the rest need not wait */
            a = a < e ? a : e;
            double found = cost[at + l] + a, known = here[l];
            gains[l] += found < known ? 1.0 : 0.0;
            here[l] = found < known ? found : known;
        }
    }
    int changed = 0;
    for (int64_t l = 0; l < LANES; l++)
        changed |= gains[l] > 0;
    return changed;
}

/* costs (maps, height * width) to totals (maps) and cells on the path (maps, height * width). Returns 0, or 1 if there is
   no memory. The caller has checked that costs are positive, and none lost to rounding, so that every step comes nearer. */
int64_t cheapest_paths(int64_t maps, int64_t height, int64_t width, const double *costs, double *totals, uint8_t *paths)
{
    int64_t side = width + 2, size = (height + 2) * side, cells = height * width;
    double *cost = aligned_alloc(64, 2 * size * LANES * sizeof(double) + (height + 2 + 63) / 64 * 64);
    if (cost == NULL)
        return 1;
    double *rest = cost + size * LANES;
    uint8_t *stale = (uint8_t *)(rest + size * LANES); /* rows whose neighbourhood has changed since they were updated */
    for (int64_t first = 0; first < maps; first += LANES) {
        for (int64_t i = 0; i < size * LANES; i++)
            rest[i] = INFINITY;
        for (int64_t l = 0; l < LANES; l++) {
            const double *source = costs + (first + l < maps ? first + l : first) * cells;
            for (int64_t v = 0; v < cells; v++)
                cost[((v / width + 1) * side + v % width + 1) * LANES + l] = source[v];
        }
        int64_t goal = (height * side + width) * LANES;
        for (int64_t l = 0; l < LANES; l++)
            rest[goal + l] = cost[goal + l];
        for (int64_t r = 0; r < height + 2; r++)
            stale[r] = 1;
        int changed = 1;
        for (int64_t step = -1; changed; step = -step) {
            changed = 0;
            for (int64_t i = 0; i < height; i++) {
                int64_t r = step > 0 ? i + 1 : height - i;
                if (!stale[r])
                    continue;
                stale[r] = 0;
                int64_t at = (r * side + 1) * LANES;
                if (update(width, cost + at, rest + at, step))
                    stale[r - 1] = stale[r] = stale[r + 1] = changed = 1;
            }
        }
        for (int64_t l = 0; l < LANES && first + l < maps; l++) {
            uint8_t *path = paths + (first + l) * cells;
            for (int64_t v = 0; v < cells; v++)
                path[v] = 0;
            totals[first + l] = rest[(side + 1) * LANES + l];
            int64_t row = 1, column = 1;
            while (1) {
                path[(row - 1) * width + column - 1] = 1;
                if (row == height && column == width)
                    break;
                /* The first of the cheapest neighbours, row by row: the tie rule. */
                double least = INFINITY;
                int64_t next_row = height, next_column = width;
                for (int64_t r = row - 1; r <= row + 1; r++)
                    for (int64_t c = column - 1; c <= column + 1; c++) {
                        double value = rest[(r * side + c) * LANES + l];
                        if (value < least && (r != row || c != column)) {
                            least = value;
                            next_row = r;
                            next_column = c;
                        }
                    }
                row = next_row;
                column = next_column;
            }
        }
    }
    free(cost);
    return 0;
}
