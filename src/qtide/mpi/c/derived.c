/* Communicators made from the job's, by calls that do not hang when a rank is lost.
 *
 * MPI has these calls only in a blocking form, so each runs in a thread, which is given up if a rank is
 * lost meanwhile. Where all ranks take part, a barrier comes first: it notices who is gone already, and
 * a thread that is given up would use a core until the program ends.
 */
#pragma GCC visibility push(default) /* these replace MPI's own */
#include "internal.h"

/* What a call is told. Its thread may outlive the lists and the group of the caller: these are copies. */
typedef struct {
    MPI_Comm comm, peer, result;
    MPI_Group group;
    MPI_Info info;
    int one, two, three; /* numbers, in the order of the call's arguments */
    int *lists[4];
    int code;
} Creation;

static bool stands_for_weights(const int *list)
{
    return list == MPI_UNWEIGHTED || list == MPI_WEIGHTS_EMPTY;
}

static int *copied(const int *list, int count)
{
    if (stands_for_weights(list))
        return (int *)list;
    int *copy = calloc((size_t)(count > 0 ? count : 0) + 1, sizeof *copy);
    if (count > 0 && list != NULL)
        memcpy(copy, list, sizeof *copy * (size_t)count);
    return copy;
}

static MPI_Group copied_group(MPI_Group group)
{
    MPI_Group copy = MPI_GROUP_NULL;
    PMPI_Group_union(group, MPI_GROUP_EMPTY, &copy);
    return copy;
}

static int created(int (*function)(void *), Creation terms, MPI_Comm *result, bool by_all)
{
    int code = by_all ? MPI_Barrier(terms.comm) : world_alive(job_watch());
    if (code != MPI_SUCCESS)
        return code;
    Creation *each = malloc(sizeof *each);
    *each = terms;
    each->result = MPI_COMM_NULL;
    if (world_call(function, each, job_watch()))
        return world_lost_code(); /* its thread may still use `each` */
    code = each->code;
    *result = each->result;
    if (*result != MPI_COMM_NULL) /* by default, a process that dies in a call would end this one */
        PMPI_Comm_set_errhandler(*result, MPI_ERRORS_RETURN);
    for (int i = 0; i < 4; i++)
        if (!stands_for_weights(each->lists[i]))
            free(each->lists[i]);
    if (each->group != 0 && each->group != MPI_GROUP_EMPTY)
        PMPI_Group_free(&each->group);
    free(each);
    return code;
}

/* `terms` are what the thread is told of the arguments, `call` the arguments that it uses. */
#define CREATED(name, parameters, arguments, by_all, terms, call)                                   \
    static int make_##name(void *arg)                                                              \
    {                                                                                              \
        Creation *of = arg;                                                                        \
        of->code = PMPI_##name call;                                                               \
        return 0;                                                                                  \
    }                                                                                              \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        return job_watch() == NULL ? PMPI_##name arguments                                         \
                                   : created(make_##name, (Creation)terms, result, by_all);        \
    }
#define TOLD(...) {__VA_ARGS__}

CREATED(Comm_dup, (MPI_Comm comm, MPI_Comm *result), (comm, result), true, TOLD(.comm = comm),
        (of->comm, &of->result))
CREATED(Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *result), (comm, info, result), true,
        TOLD(.comm = comm, .info = info), (of->comm, of->info, &of->result))
CREATED(Comm_split, (MPI_Comm comm, int colour, int key, MPI_Comm *result), (comm, colour, key, result),
        true, TOLD(.comm = comm, .one = colour, .two = key), (of->comm, of->one, of->two, &of->result))
CREATED(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *result),
        (comm, type, key, info, result), true,
        TOLD(.comm = comm, .one = type, .two = key, .info = info),
        (of->comm, of->one, of->two, of->info, &of->result))
CREATED(Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm *result), (comm, group, result), true,
        TOLD(.comm = comm, .group = copied_group(group)), (of->comm, of->group, &of->result))
CREATED(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *result),
        (comm, group, tag, result), false,
        TOLD(.comm = comm, .group = copied_group(group), .one = tag),
        (of->comm, of->group, of->one, &of->result))
CREATED(Intercomm_create,
        (MPI_Comm comm, int leader, MPI_Comm peer, int remote, int tag, MPI_Comm *result),
        (comm, leader, peer, remote, tag, result), false,
        TOLD(.comm = comm, .one = leader, .peer = peer, .two = remote, .three = tag),
        (of->comm, of->one, of->peer, of->two, of->three, &of->result))
CREATED(Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm *result), (comm, high, result), false,
        TOLD(.comm = comm, .one = high), (of->comm, of->one, &of->result))

/* -- topologies --------------------------------------------------------------------------------- */

static int dimensions(MPI_Comm comm)
{
    int count = 0;
    PMPI_Cartdim_get(comm, &count);
    return count;
}

CREATED(Cart_create,
        (MPI_Comm comm, int count, const int dims[], const int periods[], int reorder, MPI_Comm *result),
        (comm, count, dims, periods, reorder, result), true,
        TOLD(.comm = comm, .one = count, .two = reorder,
             .lists = {copied(dims, count), copied(periods, count)}),
        (of->comm, of->one, of->lists[0], of->lists[1], of->two, &of->result))
CREATED(Cart_sub, (MPI_Comm comm, const int remain[], MPI_Comm *result), (comm, remain, result), true,
        TOLD(.comm = comm, .lists = {copied(remain, dimensions(comm))}),
        (of->comm, of->lists[0], &of->result))
CREATED(Graph_create,
        (MPI_Comm comm, int count, const int ends[], const int edges[], int reorder, MPI_Comm *result),
        (comm, count, ends, edges, reorder, result), true,
        TOLD(.comm = comm, .one = count, .two = reorder,
             .lists = {copied(ends, count), copied(edges, count > 0 ? ends[count - 1] : 0)}),
        (of->comm, of->one, of->lists[0], of->lists[1], of->two, &of->result))
CREATED(Dist_graph_create_adjacent,
        (MPI_Comm comm, int in, const int from[], const int from_weights[], int out, const int to[],
         const int to_weights[], MPI_Info info, int reorder, MPI_Comm *result),
        (comm, in, from, from_weights, out, to, to_weights, info, reorder, result), true,
        TOLD(.comm = comm, .one = in, .two = out, .three = reorder, .info = info,
             .lists = {copied(from, in), copied(from_weights, in), copied(to, out),
                       copied(to_weights, out)}),
        (of->comm, of->one, of->lists[0], of->lists[1], of->two, of->lists[2], of->lists[3], of->info,
         of->three, &of->result))

int MPI_Dist_graph_create(MPI_Comm comm, int count, const int from[], const int degrees[], const int to[],
                          const int weights[], MPI_Info info, int reorder, MPI_Comm *result)
{
    if (job_watch() == NULL)
        return PMPI_Dist_graph_create(comm, count, from, degrees, to, weights, info, reorder, result);
    return fail(MPI_ERR_UNSUPPORTED_OPERATION, "MPICH hangs in MPI_Dist_graph_create on processes that "
                                               "have joined; use MPI_Dist_graph_create_adjacent");
}
