/* A growth that is given up, as a newcomer dies while it joins, leaves no trace in the sums after it.
 *
 *   given_up FILE    the newcomer of the first growth creates the file; that of the second one dies
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <qtide.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static const char *file;

/* In place of MPI's: the library calls it to join. */
int PMPI_Comm_connect(const char *port, MPI_Info info, int root, MPI_Comm comm, MPI_Comm *result)
{
    int (*connect)(const char *, MPI_Info, int, MPI_Comm, MPI_Comm *) =
        dlsym(RTLD_NEXT, "PMPI_Comm_connect");
    if (open(file, O_CREAT | O_EXCL | O_WRONLY, 0600) < 0)
        kill(getpid(), SIGKILL);
    return connect(port, info, root, comm, result);
}

int main(int argc, char **argv)
{
    int step = 0;
    if (argc < 2 || qtide_init(1, 3, 3))
        return 1;
    file = argv[1];
    qtide_state("step", &step, sizeof step);
    qtide_begin();
    for (; step < 4; step++) {
        int size = step < 2 ? qtide_expand(step + 2, 0, 30) : qtide_size();
        long part = 500 + qtide_rank(), sum = -1;
        int code = MPI_Allreduce(&part, &sum, 1, MPI_LONG, MPI_SUM, qtide_comm());
        printf("rank %d of %d: %ld\n", qtide_rank(), size, code == MPI_SUCCESS ? sum : -1L);
        fflush(stdout);
    }
    return qtide_finalize() ? 1 : 0;
}
