/* A program written for DMR, in the form of the publication's listing; ported by its include. */
#include <stdio.h>

#include "qtide_dmr.h"

int main(int argc, char **argv)
{
    int it = 0, changed = 0, sum = 0, ones = 1;
    MPI_Init(&argc, &argv);
    DMR_AUTO(dmr_init(argc, argv), (void)NULL, (void)NULL, (void)NULL);
    qtide_state("it", &it, sizeof it);
    qtide_begin();
    while (it < 2) {
        DMR_AUTO(dmr_check(SHOULD_EXPAND), (void)NULL, changed++, (void)NULL);
        MPI_Allreduce(&ones, &sum, 1, MPI_INT, MPI_SUM, DMR_WORLD_COMM);
        it++;
        DMR_MINIMIZE(checkpoint(it));
        printf("%d ranks, changed %d times, then %d\n", sum, changed, DMR_comm_size);
        fflush(stdout);
    }
    DMR_FINALIZE();
    return MPI_Finalize();
}
