/* Where collective calls of the program let MPI write.
 *
 * MPI cannot take back a collective that is given up: messages that come later still complete parts of
 * it, and would write to memory that the program uses for something else by then, such as the next sum.
 * So MPI writes to memory of the library, which is copied when the call is complete and is left to MPI for
 * ever when it is given up.
 */
#include "internal.h"

#include <stdatomic.h>

#define KEPT (64UL << 20) /* bytes of the largest landing that is kept for the next call */

struct Memory {
    size_t room;
    _Alignas(64) char bytes[];
};

static _Atomic(Memory *) spare; /* of an earlier call: fresh memory costs more than the copy */

/* Add `count` elements that begin `at` bytes after the buffer's address. */
void landing_block(Landing *landing, MPI_Aint at, MPI_Aint count, MPI_Datatype type)
{
    MPI_Aint least, extent, low, span;
    int size;
    if (count <= 0)
        return;
    PMPI_Type_get_extent(type, &least, &extent);
    PMPI_Type_get_true_extent(type, &low, &span);
    PMPI_Type_size(type, &size);
    MPI_Aint last = at + (count - 1) * extent, first = at < last ? at : last;
    last = at < last ? last : at;
    bool none = landing->data == 0;
    if (none || first + low < landing->low)
        landing->low = first + low;
    if (none || last + low + span > landing->high)
        landing->high = last + low + span;
    landing->data += count * size;
}

/* Add a block for each rank that sends one: counts and places in elements; no places: at the start. */
void landing_blocks(Landing *landing, int ranks, const int counts[], const int places[],
                   MPI_Datatype type)
{
    MPI_Aint least, extent;
    PMPI_Type_get_extent(type, &least, &extent);
    for (int i = 0; i < ranks; i++)
        landing_block(landing, places == NULL ? 0 : places[i] * extent, counts[i], type);
}

/* The address for MPI in place of `to`; with `filled`, it has what is there now. */
void *landing_address(Landing *landing, void *to, bool filled)
{
    MPI_Aint bytes = landing->high - landing->low;
    if (to == NULL || to == MPI_IN_PLACE || bytes <= 0)
        return to;
    landing->user = to;
    landing->own = atomic_exchange(&spare, NULL);
    if (landing->own == NULL || landing->own->room < (size_t)bytes) {
        free(landing->own);
        landing->own = malloc(sizeof(Memory) + (size_t)bytes);
        if (landing->own == NULL)
            abort();
        landing->own->room = (size_t)bytes;
    }
    if (filled || landing->data != bytes)
        memcpy(landing->own->bytes, landing->user + landing->low, (size_t)bytes);
    return landing->own->bytes - landing->low;
}

/* Wait, and copy what has come; the memory of a call that is given up stays MPI's. */
int landing_wait(Landing *landing, int code, MPI_Request *request, const Watch *watch)
{
    if (code == MPI_SUCCESS)
        code = world_wait(request, MPI_STATUS_IGNORE, watch);
    if (code != MPI_SUCCESS || landing->user == NULL)
        return code;
    Memory *own = landing->own;
    memcpy(landing->user + landing->low, own->bytes, (size_t)(landing->high - landing->low));
    free(own->room <= KEPT ? atomic_exchange(&spare, own) : own);
    return code;
}
