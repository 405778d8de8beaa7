/* Blocking MPI calls that do not hang when a rank of the job is lost.
 *
 * MPICH waits for a lost process forever. So, by MPI's profiling interface, each blocking call of a
 * program that has a job begins the non-blocking one, tests it until it is done, and looks at the
 * other processes meanwhile. Calls that make communicators exist only in a blocking form (derived.c).
 * Collectives write to a landing (landing.c); what a call sends stays as it is until every rank knows of
 * a loss (control_settle).
 */
#define _GNU_SOURCE
#pragma GCC visibility push(default) /* these replace MPI's own; all else in the library is hidden */
#include "internal.h"

#define CANCEL_LIMIT 1.0 /* seconds until the rest of a message is not waited for any more */

/* How many ranks a call that goes to all of them hears from. */
static int peers(MPI_Comm comm)
{
    int inter, count;
    PMPI_Comm_test_inter(comm, &inter);
    inter ? PMPI_Comm_remote_size(comm, &count) : PMPI_Comm_size(comm, &count);
    return count;
}

static int neighbours(MPI_Comm comm)
{
    int topology, count = 0, rank, out, weighted;
    PMPI_Topo_test(comm, &topology);
    PMPI_Comm_rank(comm, &rank);
    if (topology == MPI_CART && PMPI_Cartdim_get(comm, &count) == MPI_SUCCESS)
        count *= 2;
    else if (topology == MPI_GRAPH)
        PMPI_Graph_neighbors_count(comm, rank, &count);
    else if (topology == MPI_DIST_GRAPH)
        PMPI_Dist_graph_neighbors_count(comm, &count, &out, &weighted);
    return count;
}

/* Whether this process is the root of a collective call. */
static bool at_root(MPI_Comm comm, int root)
{
    int inter, rank;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_rank(comm, &rank);
    return inter ? root == MPI_ROOT : root == rank;
}

/* Whether this process gets something from the root of a collective call. */
static bool from_root(MPI_Comm comm, int root)
{
    int inter;
    PMPI_Comm_test_inter(comm, &inter);
    return inter ? root >= 0 : !at_root(comm, root);
}

/* How many elements MPI_Reduce_scatter writes; all of them if they are where the result goes. */
static MPI_Aint scattered(bool in_place, const int counts[], MPI_Comm comm)
{
    MPI_Aint sum = 0;
    int rank, ranks;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &ranks);
    for (int i = 0; i < ranks && in_place; i++)
        sum += counts[i];
    return in_place ? sum : counts[rank];
}

#define GUARDED(name, parameters, blocking, non_blocking)                                           \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        const Watch *watch = job_watch();                                                          \
        MPI_Request request;                                                                       \
        if (watch == NULL)                                                                         \
            return PMPI_##name blocking;                                                           \
        int code = world_alive(watch);                                                             \
        if (code == MPI_SUCCESS)                                                                   \
            code = PMPI_I##non_blocking;                                                           \
        return code != MPI_SUCCESS ? code : world_wait(&request, MPI_STATUS_IGNORE, watch);        \
    }

/* The same with a landing for what arrives `to`: `parts` adds its blocks. */
#define LANDED(name, parameters, blocking, to, filled, parts, non_blocking)                         \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        const Watch *watch = job_watch();                                                          \
        MPI_Request request;                                                                       \
        Landing landing = {0};                                                                     \
        if (watch == NULL)                                                                         \
            return PMPI_##name blocking;                                                           \
        int code = world_alive(watch);                                                             \
        if (code != MPI_SUCCESS)                                                                   \
            return code;                                                                           \
        parts;                                                                                     \
        to = landing_address(&landing, to, filled);                                                \
        return landing_wait(&landing, PMPI_I##non_blocking, &request, watch);                      \
    }

#define SEND (const void *data, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm)
GUARDED(Send, SEND, (data, count, type, dest, tag, comm),
        send(data, count, type, dest, tag, comm, &request))
GUARDED(Ssend, SEND, (data, count, type, dest, tag, comm),
        ssend(data, count, type, dest, tag, comm, &request))
GUARDED(Rsend, SEND, (data, count, type, dest, tag, comm),
        rsend(data, count, type, dest, tag, comm, &request))
GUARDED(Barrier, (MPI_Comm comm), (comm), barrier(comm, &request))
LANDED(Bcast, (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm),
       (data, count, type, root, comm), data, false,
       if (from_root(comm, root)) landing_block(&landing, 0, count, type),
       bcast(data, count, type, root, comm, &request))

#define TO_ROOT (const void *from, int out, MPI_Datatype type, void *to, int in, MPI_Datatype kind, \
                 int root, MPI_Comm comm)
LANDED(Gather, TO_ROOT, (from, out, type, to, in, kind, root, comm), to, from == MPI_IN_PLACE,
       if (at_root(comm, root)) landing_block(&landing, 0, (MPI_Aint)in * peers(comm), kind),
       gather(from, out, type, to, in, kind, root, comm, &request))
LANDED(Scatter, TO_ROOT, (from, out, type, to, in, kind, root, comm), to, false,
       if (root != MPI_ROOT && root != MPI_PROC_NULL) landing_block(&landing, 0, in, kind),
       scatter(from, out, type, to, in, kind, root, comm, &request))
LANDED(Gatherv,
       (const void *from, int out, MPI_Datatype type, void *to, const int in[], const int places[],
        MPI_Datatype kind, int root, MPI_Comm comm),
       (from, out, type, to, in, places, kind, root, comm), to, from == MPI_IN_PLACE,
       if (at_root(comm, root)) landing_blocks(&landing, peers(comm), in, places, kind),
       gatherv(from, out, type, to, in, places, kind, root, comm, &request))
LANDED(Scatterv,
       (const void *from, const int out[], const int places[], MPI_Datatype type, void *to, int in,
        MPI_Datatype kind, int root, MPI_Comm comm),
       (from, out, places, type, to, in, kind, root, comm), to, false,
       if (root != MPI_ROOT && root != MPI_PROC_NULL) landing_block(&landing, 0, in, kind),
       scatterv(from, out, places, type, to, in, kind, root, comm, &request))

#define TO_ALL (const void *from, int out, MPI_Datatype type, void *to, int in, MPI_Datatype kind,  \
                MPI_Comm comm)
#define TO_ALL_V (const void *from, int out, MPI_Datatype type, void *to, const int in[],           \
                  const int places[], MPI_Datatype kind, MPI_Comm comm)
#define EACH_V (const void *from, const int out[], const int at[], MPI_Datatype type, void *to,     \
                const int in[], const int places[], MPI_Datatype kind, MPI_Comm comm)
LANDED(Allgather, TO_ALL, (from, out, type, to, in, kind, comm), to, from == MPI_IN_PLACE,
       landing_block(&landing, 0, (MPI_Aint)in * peers(comm), kind),
       allgather(from, out, type, to, in, kind, comm, &request))
LANDED(Alltoall, TO_ALL, (from, out, type, to, in, kind, comm), to, from == MPI_IN_PLACE,
       landing_block(&landing, 0, (MPI_Aint)in * peers(comm), kind),
       alltoall(from, out, type, to, in, kind, comm, &request))
LANDED(Allgatherv, TO_ALL_V, (from, out, type, to, in, places, kind, comm), to, from == MPI_IN_PLACE,
       landing_blocks(&landing, peers(comm), in, places, kind),
       allgatherv(from, out, type, to, in, places, kind, comm, &request))
LANDED(Alltoallv, EACH_V, (from, out, at, type, to, in, places, kind, comm), to, from == MPI_IN_PLACE,
       landing_blocks(&landing, peers(comm), in, places, kind),
       alltoallv(from, out, at, type, to, in, places, kind, comm, &request))
LANDED(Alltoallw,
       (const void *from, const int out[], const int at[], const MPI_Datatype types[], void *to,
        const int in[], const int places[], const MPI_Datatype kinds[], MPI_Comm comm),
       (from, out, at, types, to, in, places, kinds, comm), to, from == MPI_IN_PLACE,
       for (int i = 0; i < peers(comm); i++) landing_block(&landing, places[i], in[i], kinds[i]),
       alltoallw(from, out, at, types, to, in, places, kinds, comm, &request))
LANDED(Neighbor_allgather, TO_ALL, (from, out, type, to, in, kind, comm), to, true,
       landing_block(&landing, 0, (MPI_Aint)in * neighbours(comm), kind),
       neighbor_allgather(from, out, type, to, in, kind, comm, &request))
LANDED(Neighbor_alltoall, TO_ALL, (from, out, type, to, in, kind, comm), to, true,
       landing_block(&landing, 0, (MPI_Aint)in * neighbours(comm), kind),
       neighbor_alltoall(from, out, type, to, in, kind, comm, &request))
LANDED(Neighbor_allgatherv, TO_ALL_V, (from, out, type, to, in, places, kind, comm), to, true,
       landing_blocks(&landing, neighbours(comm), in, places, kind),
       neighbor_allgatherv(from, out, type, to, in, places, kind, comm, &request))
LANDED(Neighbor_alltoallv, EACH_V, (from, out, at, type, to, in, places, kind, comm), to, true,
       landing_blocks(&landing, neighbours(comm), in, places, kind),
       neighbor_alltoallv(from, out, at, type, to, in, places, kind, comm, &request))
LANDED(Neighbor_alltoallw,
       (const void *from, const int out[], const MPI_Aint at[], const MPI_Datatype types[], void *to,
        const int in[], const MPI_Aint places[], const MPI_Datatype kinds[], MPI_Comm comm),
       (from, out, at, types, to, in, places, kinds, comm), to, true,
       for (int i = 0; i < neighbours(comm); i++) landing_block(&landing, places[i], in[i], kinds[i]),
       neighbor_alltoallw(from, out, at, types, to, in, places, kinds, comm, &request))

#define REDUCING (const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
LANDED(Allreduce, REDUCING, (from, to, count, type, op, comm), to, from == MPI_IN_PLACE,
       landing_block(&landing, 0, count, type), allreduce(from, to, count, type, op, comm, &request))
LANDED(Scan, REDUCING, (from, to, count, type, op, comm), to, from == MPI_IN_PLACE,
       landing_block(&landing, 0, count, type), scan(from, to, count, type, op, comm, &request))
LANDED(Exscan, REDUCING, (from, to, count, type, op, comm), to, true, /* rank 0 gets nothing */
       landing_block(&landing, 0, count, type), exscan(from, to, count, type, op, comm, &request))
LANDED(Reduce_scatter_block, REDUCING, (from, to, count, type, op, comm), to, from == MPI_IN_PLACE,
       landing_block(&landing, 0, from == MPI_IN_PLACE ? (MPI_Aint)count * peers(comm) : count, type),
       reduce_scatter_block(from, to, count, type, op, comm, &request))
LANDED(Reduce_scatter,
       (const void *from, void *to, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm),
       (from, to, counts, type, op, comm), to, from == MPI_IN_PLACE,
       landing_block(&landing, 0, scattered(from == MPI_IN_PLACE, counts, comm), type),
       reduce_scatter(from, to, counts, type, op, comm, &request))
LANDED(Reduce,
       (const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm),
       (from, to, count, type, op, root, comm), to, from == MPI_IN_PLACE,
       if (at_root(comm, root)) landing_block(&landing, 0, count, type),
       reduce(from, to, count, type, op, root, comm, &request))

/* Wait for a receive; one that is given up is cancelled, as the caller's memory may soon be gone. A
 * message of which a part has come is received: its sender keeps the rest until all know of the loss. */
static int received_by(MPI_Request *request, MPI_Status *status, const Watch *watch)
{
    int code = world_wait(request, status, watch), done = 0;
    if (code == MPI_SUCCESS || *request == MPI_REQUEST_NULL || PMPI_Cancel(request) != MPI_SUCCESS)
        return code;
    for (double last = now() + CANCEL_LIMIT; !done && now() < last;)
        PMPI_Test(request, &done, MPI_STATUS_IGNORE);
    return code;
}

/* Begin a receive. One from any source first waits for its message: MPICH 5.0.2 never completes it if the
 * message of a joined process is there before it. */
static int receiving(void *data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                     MPI_Request *request)
{
    MPI_Message message;
    if (source != MPI_ANY_SOURCE)
        return PMPI_Irecv(data, count, type, source, tag, comm, request);
    int code = MPI_Mprobe(source, tag, comm, &message, MPI_STATUS_IGNORE);
    return code != MPI_SUCCESS ? code : PMPI_Imrecv(data, count, type, &message, request);
}

int MPI_Recv(void *data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
             MPI_Status *status)
{
    const Watch *watch = job_watch();
    MPI_Request request;
    if (watch == NULL)
        return PMPI_Recv(data, count, type, source, tag, comm, status);
    int code = world_alive(watch);
    if (code == MPI_SUCCESS)
        code = receiving(data, count, type, source, tag, comm, &request);
    return code != MPI_SUCCESS ? code : received_by(&request, status, watch);
}

int MPI_Sendrecv(const void *from, int out, MPI_Datatype type, int dest, int tag, void *to, int in,
                 MPI_Datatype kind, int source, int other, MPI_Comm comm, MPI_Status *status)
{
    const Watch *watch = job_watch();
    MPI_Request sent, received;
    if (watch == NULL)
        return PMPI_Sendrecv(from, out, type, dest, tag, to, in, kind, source, other, comm, status);
    int code = world_alive(watch);
    if (code == MPI_SUCCESS)
        code = PMPI_Isend(from, out, type, dest, tag, comm, &sent);
    if (code == MPI_SUCCESS)
        code = receiving(to, in, kind, source, other, comm, &received);
    if (code == MPI_SUCCESS)
        code = received_by(&received, status, watch);
    return code != MPI_SUCCESS ? code : world_wait(&sent, MPI_STATUS_IGNORE, watch);
}

int MPI_Sendrecv_replace(void *data, int count, MPI_Datatype type, int dest, int tag, int source,
                         int other, MPI_Comm comm, MPI_Status *status)
{
    const Watch *watch = job_watch();
    if (watch == NULL)
        return PMPI_Sendrecv_replace(data, count, type, dest, tag, source, other, comm, status);
    int bytes, used = 0;
    PMPI_Pack_size(count, type, comm, &bytes);
    char *copy = malloc((size_t)bytes + 1);
    PMPI_Pack(data, count, type, copy, bytes, &used, comm);
    int code = MPI_Sendrecv(copy, used, MPI_PACKED, dest, tag, data, count, type, source, other, comm,
                            status);
    if (code == MPI_SUCCESS) /* else MPI may still send it */
        free(copy);
    return code;
}

/* -- requests and probes ------------------------------------------------------------------------ */

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    const Watch *watch = job_watch();
    return watch == NULL ? PMPI_Wait(request, status) : world_wait(request, status, watch);
}

/* A test that succeeds after a loss may have what a rank that gave up has changed since it sent it; and a program
 * that waits by tests would wait for ever. */
#define TESTED(name, parameters, arguments)                                                         \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        const Watch *watch = job_watch();                                                          \
        int code = PMPI_##name arguments;                                                          \
        return code != MPI_SUCCESS || watch == NULL ? code : world_alive(watch);                   \
    }
TESTED(Test, (MPI_Request *request, int *done, MPI_Status *status), (request, done, status))
TESTED(Testall, (int count, MPI_Request requests[], int *done, MPI_Status *statuses),
       (count, requests, done, statuses))
TESTED(Testany, (int count, MPI_Request requests[], int *index, int *done, MPI_Status *status),
       (count, requests, index, done, status))
TESTED(Testsome, (int count, MPI_Request requests[], int *done, int indices[], MPI_Status *statuses),
       (count, requests, done, indices, statuses))

TESTED(Iprobe, (int source, int tag, MPI_Comm comm, int *done, MPI_Status *status),
       (source, tag, comm, done, status))
TESTED(Improbe,
       (int source, int tag, MPI_Comm comm, int *done, MPI_Message *message, MPI_Status *status),
       (source, tag, comm, done, message, status))

typedef struct {
    int count, *index, *done_count, *indices;
    MPI_Request *requests;
    MPI_Status *statuses;
    int source, tag;
    MPI_Comm comm;
    MPI_Message *message;
} Many;

static int test_all(void *arg, int *done)
{
    Many *many = arg;
    return PMPI_Testall(many->count, many->requests, done, many->statuses);
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status *statuses)
{
    const Watch *watch = job_watch();
    Many many = {.count = count, .requests = requests, .statuses = statuses};
    return watch == NULL ? PMPI_Waitall(count, requests, statuses)
                         : world_until(test_all, &many, watch);
}

static int test_any(void *arg, int *done)
{
    Many *many = arg;
    return PMPI_Testany(many->count, many->requests, many->index, done, many->statuses);
}

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
    const Watch *watch = job_watch();
    Many many = {.count = count, .requests = requests, .index = index, .statuses = status};
    return watch == NULL ? PMPI_Waitany(count, requests, index, status)
                         : world_until(test_any, &many, watch);
}

static int test_some(void *arg, int *done)
{
    Many *many = arg;
    int code = PMPI_Testsome(many->count, many->requests, many->done_count, many->indices,
                             many->statuses);
    *done = *many->done_count != 0; /* MPI_UNDEFINED counts as well: there is nothing to wait for */
    return code;
}

int MPI_Waitsome(int count, MPI_Request requests[], int *done, int indices[], MPI_Status *statuses)
{
    const Watch *watch = job_watch();
    Many many = {.count = count, .requests = requests, .done_count = done, .indices = indices,
                 .statuses = statuses};
    return watch == NULL ? PMPI_Waitsome(count, requests, done, indices, statuses)
                         : world_until(test_some, &many, watch);
}

static int test_probe(void *arg, int *done)
{
    Many *many = arg;
    return PMPI_Iprobe(many->source, many->tag, many->comm, done, many->statuses);
}

int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status)
{
    const Watch *watch = job_watch();
    Many many = {.source = source, .tag = tag, .comm = comm, .statuses = status};
    return watch == NULL ? PMPI_Probe(source, tag, comm, status)
                         : world_until(test_probe, &many, watch);
}

static int test_match(void *arg, int *done)
{
    Many *many = arg;
    return PMPI_Improbe(many->source, many->tag, many->comm, done, many->message, many->statuses);
}

int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status)
{
    const Watch *watch = job_watch();
    Many many = {.source = source, .tag = tag, .comm = comm, .message = message, .statuses = status};
    return watch == NULL ? PMPI_Mprobe(source, tag, comm, message, status)
                         : world_until(test_match, &many, watch);
}

int MPI_Mrecv(void *data, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status)
{
    const Watch *watch = job_watch();
    MPI_Request request;
    if (watch == NULL)
        return PMPI_Mrecv(data, count, type, message, status);
    int code = world_alive(watch);
    if (code == MPI_SUCCESS)
        code = PMPI_Imrecv(data, count, type, message, &request);
    return code != MPI_SUCCESS ? code : world_wait(&request, status, watch);
}

/* -- beginning and end -------------------------------------------------------------------------- */

/* A program may begin MPI before the job: it begins as a world of one process. */
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc, (void)argv, (void)required;
    if (world_begin())
        return MPI_ERR_OTHER;
    *provided = MPI_THREAD_MULTIPLE;
    return MPI_SUCCESS;
}

int MPI_Init(int *argc, char ***argv)
{
    int provided;
    return MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
}

int MPI_Finalize(void)
{
    if (job.active)
        qtide_finalize();
    return world_end() ? MPI_ERR_OTHER : MPI_SUCCESS;
}
