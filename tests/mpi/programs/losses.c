/* One rank is killed, and the other calls an operation that makes a communicator; one line for each. */
#include <qtide.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static MPI_Comm cart = MPI_COMM_NULL; /* made before the loss */

static int call(int which, MPI_Comm comm, const char **name)
{
    int dims[1] = {2}, periods[1] = {1}, ends[2] = {1, 2}, edges[2] = {1, 0}, other[1] = {1}, data = 0;
    MPI_Comm made;
    MPI_Group group;
    PMPI_Comm_group(comm, &group);
    switch (which) {
    case 0: *name = "dup"; return MPI_Comm_dup(comm, &made);
    case 1: *name = "split"; return MPI_Comm_split(comm, 0, 0, &made);
    case 2: *name = "type"; return MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made);
    case 3: *name = "create"; return MPI_Comm_create(comm, group, &made);
    case 4: *name = "group"; return MPI_Comm_create_group(comm, group, 1, &made);
    case 5: *name = "cart"; return MPI_Cart_create(comm, 1, dims, periods, 0, &made);
    case 6: *name = "sub"; return MPI_Cart_sub(cart, dims, &made);
    case 7: *name = "graph"; return MPI_Graph_create(comm, 2, ends, edges, 0, &made);
    case 8:
        *name = "adjacent";
        return MPI_Dist_graph_create_adjacent(comm, 1, other, MPI_UNWEIGHTED, 1, other, MPI_UNWEIGHTED,
                                              MPI_INFO_NULL, 0, &made);
    case 9:
        *name = "neighbours";
        return MPI_Neighbor_allgather(&data, 1, MPI_INT, dims, 1, MPI_INT, cart);
    default: return -1;
    }
}

int main(void)
{
    struct { int which; } state = {0};
    if (qtide_init(1, 2, 2))
        return 1;
    qtide_state("state", &state, sizeof state);
    qtide_begin();
    for (;;) {
        const char *name = "";
        int dims[1] = {2}, periods[1] = {0};
        if (qtide_expand(2, 2, 30) != 2)
            continue;
        if (state.which == 10)
            break;
        if (MPI_Cart_create(qtide_comm(), 1, dims, periods, 0, &cart) != MPI_SUCCESS)
            return 1;
        state.which++;
        qtide_save();
        if (qtide_rank() == 1)
            kill(getpid(), SIGKILL);
        int code = call(state.which - 1, qtide_comm(), &name);
        printf("%s %s\n", name, qtide_is_lost(code) ? "lost" : "went on");
        fflush(stdout);
        if (qtide_recover() != 1)
            return 1;
    }
    return qtide_finalize() ? 1 : 0;
}
