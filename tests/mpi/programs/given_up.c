/* A growth that is given up, as a newcomer dies while it joins, leaves no trace in the sums after it.
 *
 *   given_up FILE         the newcomer of the second growth dies before it connects
 *   given_up FILE sent    that of the first one dies while what it has sent is on its way to the root
 *
 * The newcomer of the first growth creates the file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <qtide.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const char *file;
static int root; /* the process to stop, in a newcomer that dies when it has sent something */

/* In place of UCX's. The root reads the message when this process is gone. */
void *ucp_tag_send_nbx(void *to, const void *data, size_t count, uint64_t tag, const void *how)
{
    void *(*send)(void *, const void *, size_t, uint64_t, const void *) =
        dlsym(RTLD_NEXT, "ucp_tag_send_nbx");
    if (root == 0)
        return send(to, data, count, tag, how);
    int ends[2]; /* the other process has none of this one's memory, and reads until this one is gone */
    char then[64];
    snprintf(then, sizeof then, "cat; kill -CONT %d", root);
    kill(root, SIGSTOP);
    send(to, data, count, tag, how);
    if (pipe(ends) == 0 && fork() == 0) {
        close(ends[1]);
        dup2(ends[0], 0);
        execl("/bin/sh", "sh", "-c", then, NULL);
    }
    kill(getpid(), SIGKILL);
    return NULL;
}

/* In place of MPI's: the library calls it to join. */
int PMPI_Comm_connect(const char *port, MPI_Info info, int rank, MPI_Comm comm, MPI_Comm *result)
{
    int (*connect)(const char *, MPI_Info, int, MPI_Comm, MPI_Comm *) =
        dlsym(RTLD_NEXT, "PMPI_Comm_connect");
    int first = open(file, O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0, given = atoi(getenv("GIVEN_UP_ROOT"));
    if (!first && !given)
        kill(getpid(), SIGKILL);
    root = first ? given : 0;
    return connect(port, info, rank, comm, result);
}

int main(int argc, char **argv)
{
    int step = 0;
    char number[16];
    snprintf(number, sizeof number, "%d", argc > 2 ? getpid() : 0);
    setenv("GIVEN_UP_ROOT", number, 0);
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
