/* The quantum component of examples/mpi/components.py, compiled: it answers problems until there are
 * no more. libqtide begins MPI as a world of its own, so no process manager is needed.
 *
 *   server MEETING_FOLDER
 */
#include <qtide.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 3, SPINS = 30, SWEEPS = 200 };

/* Lower the energy spin by spin, from many beginnings. */
static void solve(double couplings[SPINS][SPINS], double best[SPINS])
{
    double lowest = 0;
    unsigned seed = 1;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double spins[SPINS], energy = 0;
        for (int i = 0; i < SPINS; i++)
            spins[i] = rand_r(&seed) % 2 ? 1 : -1;
        for (int i = 0; i < 10 * SPINS; i++) {
            double field = 0;
            for (int j = 0; j < SPINS; j++)
                field += (couplings[i % SPINS][j] + couplings[j][i % SPINS]) * spins[j];
            spins[i % SPINS] = field > 0 ? -1 : 1;
        }
        for (int i = 0; i < SPINS; i++)
            for (int j = 0; j < SPINS; j++)
                energy += couplings[i][j] * spins[i] * spins[j];
        for (int i = 0; i < SPINS && energy < lowest; i++)
            best[i] = spins[i];
        lowest = energy < lowest ? energy : lowest;
    }
}

int main(int argc, char **argv)
{
    char port[MPI_MAX_PORT_NAME], draft[4096], name[4096];
    double couplings[SPINS][SPINS], spins[SPINS] = {0};
    MPI_Comm both;
    MPI_Info limit;
    if (argc < 2 || MPI_Init(&argc, &argv) || MPI_Open_port(MPI_INFO_NULL, port))
        return 1;
    snprintf(draft, sizeof draft, "%s/port.new", argv[1]);
    snprintf(name, sizeof name, "%s/port", argv[1]);
    FILE *file = fopen(draft, "w");
    if (file == NULL || fputs(port, file) < 0 || fclose(file) || rename(draft, name))
        return 1;
    MPI_Info_create(&limit);
    MPI_Info_set(limit, "timeout", "60");
    if (MPI_Comm_accept(port, limit, 0, MPI_COMM_SELF, &both))
        return 1;
    for (int i = 0; i < ROUNDS; i++) {
        MPI_Recv(couplings, SPINS * SPINS, MPI_DOUBLE, 0, 0, both, MPI_STATUS_IGNORE);
        solve(couplings, spins);
        MPI_Send(spins, SPINS, MPI_DOUBLE, 0, 0, both);
    }
    MPI_Comm_disconnect(&both);
    return MPI_Finalize() != MPI_SUCCESS;
}
