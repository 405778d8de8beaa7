/* Heat spreads on a plate whose rows are spread over the ranks, on a number of nodes that changes.
 *
 *   heat STEPS [SIZE ...]      e.g. heat 100 1 3 2: ten steps on one node, ten on three, and so on
 *   heat STEPS                 on the nodes that it was started on
 */
#include <qtide.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 96, COLUMNS = 64, EVERY = 10, MOST = 3 };
typedef double Row[COLUMNS];

static void fill(qtide_array *plate)
{
    Row *row = plate->local;
    for (int64_t i = 0; i < plate->count; i++)
        for (int j = 0; j < COLUMNS; j++)
            row[i][j] = (double)((plate->first + i) * 31 % 97 + j * 17 % 89);
}

/* One step of the stencil; the rows of the neighbours are fetched. An MPI error code. */
static int spread(qtide_array *plate)
{
    int rank = qtide_rank(), last = qtide_size() - 1, code;
    Row *row = plate->local, above = {0}, below = {0};
    int64_t count = plate->count;
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank < last ? rank + 1 : MPI_PROC_NULL;
    if ((code = MPI_Sendrecv(row[0], COLUMNS, MPI_DOUBLE, up, 0, below, COLUMNS, MPI_DOUBLE, down, 0,
                             qtide_comm(), MPI_STATUS_IGNORE)) ||
        (code = MPI_Sendrecv(row[count - 1], COLUMNS, MPI_DOUBLE, down, 1, above, COLUMNS, MPI_DOUBLE,
                             up, 1, qtide_comm(), MPI_STATUS_IGNORE)))
        return code;
    Row *next = malloc(sizeof(Row) * (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        double *north = i > 0 ? row[i - 1] : above, *south = i < count - 1 ? row[i + 1] : below;
        for (int j = 0; j < COLUMNS; j++) {
            double west = j > 0 ? row[i][j - 1] : 0, east = j < COLUMNS - 1 ? row[i][j + 1] : 0;
            next[i][j] = row[i][j] + 0.2 * (north[j] + south[j] + west + east - 4 * row[i][j]);
        }
    }
    memcpy(row, next, sizeof(Row) * (size_t)count);
    free(next);
    return MPI_SUCCESS;
}

/* A sum over the bits of all numbers: it does not depend on who has them. */
static int checksum(qtide_array *plate, uint64_t *sum)
{
    uint64_t mine = 0, bits, *rows = plate->local;
    for (int64_t i = 0; i < plate->count * COLUMNS; i++) {
        memcpy(&bits, rows + i, sizeof bits);
        mine += bits * (uint64_t)(2 * (plate->first * COLUMNS + i) + 1);
    }
    return MPI_Allreduce(&mine, sum, 1, MPI_UINT64_T, MPI_SUM, qtide_comm());
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 100, step = 0;
    uint64_t sum = 0;
    if (qtide_init(1, MOST, MOST))
        return 1;
    qtide_state("step", &step, sizeof step);
    qtide_array *plate = qtide_distributed("plate", ROWS, sizeof(Row), 0);
    if (!plate->restored)
        fill(plate);
    qtide_begin();
    while (step < steps) {
        int to = argc > 2 ? atoi(argv[2 + step / EVERY % (argc - 2)]) : qtide_size();
        int size = to >= qtide_size() ? qtide_expand(to, 0, 30) : qtide_shrink(to);
        if (size == QTIDE_LOST || spread(plate) != MPI_SUCCESS) {
            if (qtide_recover() < 0) /* goes back to what was saved last */
                return 1;
            continue;
        }
        step++;
        if (step % EVERY == 0)
            qtide_save();
    }
    if (checksum(plate, &sum) == MPI_SUCCESS && qtide_rank() == 0)
        printf("%d steps, checksum %016llx\n", step, (unsigned long long)sum);
    return qtide_finalize() ? 1 : 0;
}
