/* A rank dies while it sends a large message; then the others receive that, and send to it, before they know. */
#include <qtide.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

enum { LARGE = 1 << 20 };

static double data[LARGE];

int main(void)
{
    int done = 0, flag, sum = 0, size;
    MPI_Request received, sent;
    if (qtide_init(1, 3, 3))
        return 1;
    qtide_state("done", &done, sizeof done);
    qtide_begin();
    while (!done) {
        if (qtide_expand(3, 3, 30) != 3)
            continue;
        done = 1;
        qtide_save();
        MPI_Comm comm = qtide_comm();
        int rank = qtide_rank();
        if (rank == 2) {
            PMPI_Isend(data, LARGE, MPI_DOUBLE, 0, 0, comm, &sent);
            kill(getpid(), SIGKILL);
        }
        for (int i = 0; i < 50; i++, usleep(1000)) /* UCX notices it, if it does at all */
            PMPI_Iprobe(2, 1, comm, &flag, MPI_STATUS_IGNORE);
        if (rank == 0) {
            PMPI_Irecv(data, LARGE, MPI_DOUBLE, 2, 0, comm, &received);
            for (int i = 0; i < 50; i++)
                PMPI_Iprobe(2, 1, comm, &flag, MPI_STATUS_IGNORE);
        }
        PMPI_Isend(&flag, 1, MPI_INT, 2, 0, comm, &sent);
        int code = MPI_Barrier(comm);
        size = qtide_is_lost(code) ? qtide_recover() : -1;
        if (size != 2 || MPI_Allreduce(&size, &sum, 1, MPI_INT, MPI_SUM, qtide_comm()) != MPI_SUCCESS)
            return 1;
    }
    if (qtide_rank() == 0)
        printf("%d\n", sum);
    return qtide_finalize() ? 1 : 0;
}
