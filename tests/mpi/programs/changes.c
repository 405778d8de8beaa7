/* Changes its size at random; its data, in every layout, is checked after every change.
 *
 *   changes CHANGES SEED MOST [save]
 */
#include <qtide.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 1001, WIDTH = 3, BLOCK = 16, OWN = 500 };

static int own[OWN], moved[OWN]; /* a layout of its own: rank 0 has all, the others copies */

static int follow(int what, MPI_Comm comm, int old_size, int new_size, void *extra)
{
    (void)old_size, (void)new_size, (void)extra;
    if (what == QTIDE_MOVE) {
        memcpy(moved, own, sizeof own);
        return MPI_Bcast(moved, OWN, MPI_INT, 0, comm);
    }
    if (what == QTIDE_KEEP)
        memcpy(own, moved, sizeof own);
    return 0;
}

static void fill(qtide_array *array, int width)
{
    double *rows = array->local;
    for (int64_t i = 0; i < array->count; i++)
        for (int j = 0; j < width; j++)
            rows[i * width + j] = (double)(qtide_row(array, i) * 7 + j);
}

static int wrong(qtide_array *array, int width)
{
    double *rows = array->local;
    for (int64_t i = 0; i < array->count; i++)
        for (int j = 0; j < width; j++)
            if (rows[i * width + j] != (double)(qtide_row(array, i) * 7 + j))
                return 1;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    int changes = atoi(argv[1]), most = atoi(argv[3]), losses = 0;
    struct { int step; char more[100]; } state = {0, "the same everywhere"};
    if (qtide_init(1, most, most)) /* prints why */
        return 1;
    qtide_state("state", &state, sizeof state);
    qtide_array *plain = qtide_distributed("plain", ROWS, WIDTH * sizeof(double), 0);
    qtide_array *turns = qtide_distributed("turns", ROWS, sizeof(double), BLOCK);
    qtide_array *few = qtide_distributed("few", 2, sizeof(double), 0);
    qtide_on_change(follow, NULL);
    fill(plain, WIDTH);
    fill(turns, 1);
    fill(few, 1);
    for (int i = 0; i < OWN && !qtide_newcomer(); i++)
        own[i] = i * i;
    qtide_begin();
    if (argc > 4 && !qtide_newcomer())
        qtide_save();
    while (state.step < changes) {
        unsigned seed = (unsigned)(atoi(argv[2]) * 1000 + state.step); /* newcomers draw the same */
        rand_r(&seed);
        int to = 1 + rand_r(&seed) % most;
        int size = to >= qtide_size() ? qtide_expand(to, 0, 30) : qtide_shrink(to);
        int64_t sums[2] = {plain->count, turns->count}, all[2];
        int code = size < 0 ? MPI_ERR_OTHER
                            : MPI_Allreduce(sums, all, 2, MPI_INT64_T, MPI_SUM, qtide_comm());
        if (code != MPI_SUCCESS) {
            losses++;
            if (qtide_recover() < 0) {
                fprintf(stderr, "%s\n", qtide_message());
                return 1;
            }
            continue;
        }
        int bad = wrong(plain, WIDTH) + 2 * wrong(turns, 1) + 4 * wrong(few, 1);
        for (int i = 0; i < OWN; i++)
            bad |= own[i] == i * i && strcmp(state.more, "the same everywhere") == 0 ? 0 : 8;
        if (bad || all[0] != ROWS || all[1] != ROWS) {
            fprintf(stderr, "step %d on %d ranks: wrong data %d\n", state.step, size, bad);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
        state.step++;
    }
    if (qtide_rank() == 0)
        printf("done %d\n", state.step);
    return qtide_finalize() ? 1 : 0;
}
