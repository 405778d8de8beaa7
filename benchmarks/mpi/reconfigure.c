/* 1 -> 3 -> 1 nodes, repeatedly; the seconds of each, and how many growths failed, as JSON.
 *
 *   reconfigure ROUNDS [PAUSE]     with 0 rounds, only MPI begins and ends; a pause of so many
 *                                  milliseconds lets Slurm clean up the nodes before they are asked for
 */
#define _GNU_SOURCE
#include <qtide.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 3 };

static void print_list(const char *name, const double *seconds, int count)
{
    printf("\"%s\": [", name);
    for (int i = 0; i < count; i++)
        printf(i ? ", %.6f" : "%.6f", seconds[i]);
    printf("], ");
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 20, step = 0, failures = 0, one = 1, sum;
    if (rounds == 0)
        return MPI_Init(&argc, &argv) || MPI_Finalize();
    double *expands = calloc((size_t)rounds, sizeof *expands);
    double *shrinks = calloc((size_t)rounds, sizeof *shrinks);
    if (qtide_init(1, MOST, MOST))
        return 1;
    qtide_state("step", &step, sizeof step);
    qtide_begin();
    while (step < rounds) {
        double began = MPI_Wtime();
        failures += qtide_expand(MOST, 0, 30) != MOST;
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, qtide_comm());
        expands[step] = MPI_Wtime() - began;
        began = MPI_Wtime();
        qtide_minimise();
        shrinks[step++] = MPI_Wtime() - began;
        usleep(argc > 2 ? 1000 * (unsigned)atoi(argv[2]) : 0);
    }
    printf("{");
    print_list("expand", expands, rounds);
    print_list("shrink", shrinks, rounds);
    printf("\"failures\": %d}\n", failures);
    return qtide_finalize() ? 1 : 0;
}
