/* Collectives on a job's communicator leave the same bytes in their buffers as MPI's own.
 *
 * Of each kind: plain, in place, with gaps between the elements, to the buffer's middle.
 */
#include <qtide.h>
#include <stdio.h>
#include <string.h>

enum { ROOM = 4096, COUNT = 5 };

static char from[ROOM], mine[ROOM], theirs[ROOM];
static int rank, size, wrong;

static void prepare(int seed)
{
    for (int i = 0; i < ROOM / 4; i++) {
        ((int *)from)[i] = 7 * i + 100 * rank + seed;
        ((int *)mine)[i] = ((int *)theirs)[i] = -3 * i - rank - seed;
    }
}

/* Call MPI's own and the library's; compare all of the buffers. */
#define SAME(call, ...)                                                                             \
    do {                                                                                           \
        char *to = theirs;                                                                         \
        prepare(__LINE__);                                                                         \
        int code = PMPI_##call(__VA_ARGS__);                                                       \
        to = mine;                                                                                 \
        code |= MPI_##call(__VA_ARGS__);                                                           \
        if (code || memcmp(mine, theirs, ROOM)) {                                                  \
            fprintf(stderr, "rank %d, line %d: %s differs\n", rank, __LINE__, #call);              \
            wrong = 1;                                                                             \
        }                                                                                          \
    } while (0)

static void compare(MPI_Comm comm, MPI_Datatype kind)
{
    int counts[3] = {2, 3, 1}, places[3] = {12, 0, 6}, bytes[3] = {480, 0, 240};
    MPI_Datatype kinds[3] = {kind, kind, kind};
    SAME(Bcast, to, COUNT, kind, 1, comm);
    SAME(Gather, from, COUNT, kind, to, COUNT, kind, 2, comm);
    SAME(Gatherv, from, counts[rank], kind, to, counts, places, kind, 0, comm);
    SAME(Scatter, from, COUNT, kind, rank == 0 ? MPI_IN_PLACE : to, COUNT, kind, 0, comm);
    SAME(Scatterv, from, counts, places, kind, to + 8, counts[rank], kind, 2, comm);
    SAME(Allgather, from, COUNT, kind, to, COUNT, kind, comm);
    SAME(Allgather, MPI_IN_PLACE, 0, kind, to, COUNT, kind, comm);
    SAME(Allgatherv, from, counts[rank], kind, to, counts, places, kind, comm);
    SAME(Alltoall, from, COUNT, kind, to, COUNT, kind, comm);
    SAME(Alltoall, MPI_IN_PLACE, 0, kind, to, COUNT, kind, comm);
    int all[3] = {2, 2, 2};
    SAME(Alltoallv, from, all, places, kind, to, all, places, kind, comm);
    SAME(Alltoallw, from, all, bytes, kinds, to, all, bytes, kinds, comm);
}

static void compare_sums(MPI_Comm comm)
{
    int counts[3] = {2, 0, 3};
    SAME(Allreduce, from, to, COUNT, MPI_INT, MPI_SUM, comm);
    SAME(Allreduce, MPI_IN_PLACE, to, COUNT, MPI_INT, MPI_MAX, comm);
    SAME(Reduce, rank == 1 ? MPI_IN_PLACE : from, to, COUNT, MPI_INT, MPI_SUM, 1, comm);
    SAME(Scan, from, to, COUNT, MPI_INT, MPI_SUM, comm);
    SAME(Exscan, from, to, COUNT, MPI_INT, MPI_SUM, comm);
    SAME(Reduce_scatter, from, to, counts, MPI_INT, MPI_SUM, comm);
    SAME(Reduce_scatter_block, from, to, COUNT, MPI_INT, MPI_SUM, comm);
}

static void compare_neighbours(MPI_Comm comm)
{
    int periods[1] = {0}, dims[1] = {size}, counts[2] = {2, 1}, places[2] = {3, 0};
    MPI_Aint at[2] = {8, 0};
    MPI_Datatype kinds[2] = {MPI_INT, MPI_INT};
    MPI_Comm line;
    MPI_Cart_create(comm, 1, dims, periods, 0, &line); /* its ends have one neighbour */
    SAME(Neighbor_allgather, from, 1, MPI_INT, to, 1, MPI_INT, line);
    SAME(Neighbor_alltoall, from, 2, MPI_INT, to, 2, MPI_INT, line);
    int own[2] = {1, 2}; /* what goes left arrives as the neighbour's right part */
    SAME(Neighbor_alltoallv, from, own, places, MPI_INT, to, counts, places, MPI_INT, line);
    SAME(Neighbor_alltoallw, from, own, at, kinds, to, counts, at, kinds, line);
    PMPI_Comm_free(&line);
    int other[1] = {(rank + 1) % size}, one[1] = {1};
    if (MPI_Dist_graph_create(comm, 1, &rank, one, other, one, MPI_INFO_NULL, 0, &line) == MPI_SUCCESS ||
        strstr(qtide_message(), "use MPI_Dist_graph_create_adjacent") == NULL)
        wrong = 1; /* MPI would hang in it */
}

int main(void)
{
    MPI_Datatype gaps, shifted;
    if (qtide_init(3, 3, 3))
        return 1;
    qtide_begin();
    while (qtide_expand(3, 3, 30) < 3)
        continue;
    rank = qtide_rank();
    size = qtide_size();
    MPI_Type_vector(2, 2, 5, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Type_create_hindexed_block(1, 1, (MPI_Aint[]){12}, gaps, &shifted);
    MPI_Type_commit(&shifted);
    compare(qtide_comm(), MPI_INT);
    compare(qtide_comm(), gaps);
    compare(qtide_comm(), shifted);
    compare_sums(qtide_comm());
    compare_neighbours(qtide_comm());
    int any;
    PMPI_Allreduce(&wrong, &any, 1, MPI_INT, MPI_MAX, qtide_comm());
    if (rank == 0)
        printf(any ? "different\n" : "the same\n");
    return qtide_finalize() || any;
}
