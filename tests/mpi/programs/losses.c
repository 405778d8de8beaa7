/* One rank is killed, and the other calls an operation that MPI has only in a blocking form: one that makes a
 * communicator, or one on a file. One line for each. */
#include <qtide.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { CASES = 13, MODE = MPI_MODE_CREATE | MPI_MODE_RDWR };

static MPI_Comm cart = MPI_COMM_NULL; /* these are made before the loss */
static MPI_File file = MPI_FILE_NULL;

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
    case 4: *name = "cart"; return MPI_Cart_create(comm, 1, dims, periods, 0, &made);
    case 5: *name = "sub"; return MPI_Cart_sub(cart, dims, &made);
    case 6: *name = "graph"; return MPI_Graph_create(comm, 2, ends, edges, 0, &made);
    case 7:
        *name = "adjacent";
        return MPI_Dist_graph_create_adjacent(comm, 1, other, MPI_UNWEIGHTED, 1, other, MPI_UNWEIGHTED,
                                              MPI_INFO_NULL, 0, &made);
    case 8:
        *name = "neighbours";
        return MPI_Neighbor_allgather(&data, 1, MPI_INT, dims, 1, MPI_INT, cart);
    case 9: *name = "open"; return MPI_File_open(comm, "other", MODE, MPI_INFO_NULL, &file);
    case 10: *name = "view"; return MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    case 11: *name = "write"; return MPI_File_write_all(file, dims, 1, MPI_INT, MPI_STATUS_IGNORE);
    case 12: *name = "close"; return MPI_File_close(&file);
    default: return -1;
    }
}

/* Open a file, and let each rank read what the other one has written. */
static int exchanged_by_file(MPI_Comm comm)
{
    int mine = 7 + qtide_rank(), theirs = 0, count = 0, other = 1 - qtide_rank();
    MPI_Status status;
    return MPI_File_open(comm, "file", MODE, MPI_INFO_NULL, &file) ||
           MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) ||
           MPI_File_write_at_all(file, qtide_rank(), &mine, 1, MPI_INT, &status) ||
           MPI_File_sync(file) ||
           MPI_File_read_at_all(file, other, &theirs, 1, MPI_INT, &status) ||
           MPI_Get_count(&status, MPI_INT, &count) || count != 1 || theirs != 7 + other;
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
        if (state.which == CASES)
            break;
        if (MPI_Cart_create(qtide_comm(), 1, dims, periods, 0, &cart) != MPI_SUCCESS ||
            exchanged_by_file(qtide_comm()))
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
