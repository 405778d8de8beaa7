/* The rows of an array from two ranks to three, by the library and by a plain Alltoallv, as JSON.
 *
 *   move ROWS TURNS            rows of 8 kB
 */
#include <qtide.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 8192 };

static qtide_array *rows;
static double spent, began; /* seconds of the plain collective; when the library has moved its rows */

static int64_t start_of(int rank, int size)
{
    int64_t least = rows->rows / size, more = rows->rows % size;
    return rank * least + (rank < more ? rank : more);
}

/* As many rows as the library has just moved, by one collective. */
static int plain(int what, MPI_Comm comm, int old_size, int new_size, void *extra)
{
    int rank, size, counts[4][3] = {{0}};
    (void)extra;
    if (what != QTIDE_MOVE || new_size != 3 || old_size != 2)
        return 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int turn = 0; turn < 2; turn++) { /* what goes out, what comes in */
        int here = turn ? new_size : old_size, there = turn ? old_size : new_size, sum = 0;
        int64_t first = rank < here ? start_of(rank, here) : 0;
        int64_t last = rank < here ? start_of(rank + 1, here) : 0;
        for (int other = 0; other < there; other++) {
            int64_t low = start_of(other, there), high = start_of(other + 1, there);
            low = low > first ? low : first;
            high = high < last ? high : last;
            counts[2 * turn][other] = high > low ? (int)(high - low) : 0;
            counts[2 * turn + 1][other] = sum;
            sum += counts[2 * turn][other];
        }
    }
    char *to = malloc((size_t)(start_of(rank + 1, 3) - start_of(rank, 3)) * WIDTH + 1);
    MPI_Datatype row;
    MPI_Type_contiguous(WIDTH, MPI_BYTE, &row);
    MPI_Type_commit(&row);
    MPI_Barrier(comm);
    began = MPI_Wtime();
    PMPI_Alltoallv(rows->local, counts[0], counts[1], row, to, counts[2], counts[3], row, comm);
    MPI_Barrier(comm);
    spent = MPI_Wtime() - began;
    MPI_Type_free(&row);
    free(to);
    return 0;
}

int main(int argc, char **argv)
{
    int turns = argc > 2 ? atoi(argv[2]) : 3, step = 0;
    if (qtide_init(1, 3, 3))
        return 1;
    qtide_state("step", &step, sizeof step);
    rows = qtide_distributed("rows", argc > 1 ? atoll(argv[1]) : 131072, WIDTH, 0);
    qtide_on_change(plain, NULL);
    memset(rows->local, 1, (size_t)rows->count * WIDTH);
    qtide_begin();
    while (step < 2 * turns) {
        int to = step % 2 ? 3 : 2;
        to >= qtide_size() ? qtide_expand(to, to, 60) : qtide_shrink(to);
        if (qtide_rank() == 0 && to == 3)
            printf("%.6f\n", spent);
        step++;
    }
    return qtide_finalize() ? 1 : 0;
}
