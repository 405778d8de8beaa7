/* Joins and splits communicators by MPI's calls, which block and are therefore watched. */
#include "internal.h"

#define ACCEPT_LIMIT "3" /* seconds within which a newcomer that is ready has to connect by MPI */
#define TAG 1            /* of messages that join communicators */
#define NUMBERS 256      /* how many newcomers differ in the context numbers that they use */

char **join_open(int count)
{
    char **ports = calloc((size_t)count + 1, sizeof *ports);
    for (int i = 0; i < count; i++) {
        ports[i] = malloc(MPI_MAX_PORT_NAME);
        PMPI_Open_port(MPI_INFO_NULL, ports[i]);
    }
    return ports;
}

/* Ports at which nobody came stay open: an accept that timed out is still posted in MPICH, and would
 * take the next process that connects to a port of the same number. */
void join_close(char **ports, int count, bool connected)
{
    for (int i = 0; i < count; i++) {
        if (connected)
            PMPI_Close_port(ports[i]);
        free(ports[i]);
    }
    free(ports);
}

/* Merge the two sides of an intercommunicator; the side with `high` 0 comes first. MPICH does not pass
 * the error handler on to either, and by default a process that dies here would end this one. */
static int merged(MPI_Comm inter, int high, MPI_Comm *comm)
{
    PMPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    int code = PMPI_Intercomm_merge(inter, high, comm);
    if (code != MPI_SUCCESS)
        return code; /* MPI may still use it */
    PMPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN);
    PMPI_Comm_free(&inter);
    return code;
}

typedef struct {
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm comm, result;
    MPI_Comm *pairs;
    MPI_Group group;
    int count, tag;
} Join;

/* Run one part of a join; the memory of one that fails is kept, as its thread may still use it. */
static int joined(int (*function)(void *), Join *join, MPI_Comm *result, const Watch *watch)
{
    int code = world_closed() ? QTIDE_LOST : world_call(function, join, watch);
    if (code)
        return code;
    *result = join->result;
    free(join->pairs);
    free(join);
    return 0;
}

static int accept_one(void *arg)
{
    Join *join = arg;
    MPI_Info info;
    MPI_Comm inter;
    PMPI_Info_create(&info);
    PMPI_Info_set(info, "timeout", ACCEPT_LIMIT);
    int code = PMPI_Comm_accept(join->port, info, 0, MPI_COMM_SELF, &inter);
    PMPI_Info_free(&info);
    return code != MPI_SUCCESS ? code : merged(inter, 0, &join->result);
}

int join_accept(char **ports, int count, MPI_Comm *pairs, const Watch *watch)
{
    for (int i = 0; i < count; i++) {
        Join *join = calloc(1, sizeof *join);
        strncpy(join->port, ports[i], MPI_MAX_PORT_NAME - 1);
        int code = joined(accept_one, join, &pairs[i], watch);
        if (code)
            return code;
    }
    return 0;
}

/* Add one process after another; only the root has the pairs. */
static int extended(MPI_Comm comm, MPI_Comm *pairs, int count, bool own, MPI_Comm *result)
{
    for (int i = 0; i < count; i++) {
        MPI_Comm inter, larger, pair = pairs ? pairs[i] : MPI_COMM_NULL;
        int code = PMPI_Intercomm_create(comm, 0, pair == MPI_COMM_NULL ? comm : pair, 1, TAG, &inter);
        if (code != MPI_SUCCESS || (code = merged(inter, 0, &larger)) != MPI_SUCCESS)
            return code;
        if (own)
            PMPI_Comm_free(&comm);
        if (pair != MPI_COMM_NULL)
            PMPI_Comm_free(&pair);
        comm = larger;
        own = true;
    }
    *result = comm;
    return MPI_SUCCESS;
}

static int extend_all(void *arg)
{
    Join *join = arg;
    return extended(join->comm, join->pairs, join->count, false, &join->result);
}

int join_extend(MPI_Comm comm, const MPI_Comm *pairs, int count, MPI_Comm *result, const Watch *watch)
{
    Join *join = calloc(1, sizeof *join);
    join->comm = comm;
    join->count = count;
    if (pairs != NULL) {
        join->pairs = malloc(sizeof *pairs * (size_t)count);
        memcpy(join->pairs, pairs, sizeof *pairs * (size_t)count);
    }
    return joined(extend_all, join, result, watch);
}

/* Occupy as many of MPI's context numbers as no other recent newcomer does. While it joins, MPICH lets both
 * sides use the newcomer's lowest free number, which is the same for all fresh processes: what the root
 * still has of a newcomer that died would be taken for this one's. */
static void occupy(MPI_Comm *numbers, int count)
{
    for (int i = 0; i < count; i++)
        PMPI_Comm_dup(MPI_COMM_SELF, &numbers[i]);
}

static int connect_one(void *arg)
{
    Join *join = arg;
    MPI_Comm inter, pair, comm, numbers[NUMBERS];
    int count = control_identity() % NUMBERS;
    occupy(numbers, count);
    int code = PMPI_Comm_connect(join->port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter);
    if (code == MPI_SUCCESS)
        code = merged(inter, 1, &pair);
    if (code == MPI_SUCCESS)
        code = PMPI_Intercomm_create(MPI_COMM_SELF, 0, pair, 0, TAG, &inter);
    if (code == MPI_SUCCESS)
        code = merged(inter, 1, &comm);
    if (code != MPI_SUCCESS)
        return code;
    PMPI_Comm_free(&pair);
    code = extended(comm, NULL, join->count, true, &join->result);
    for (int i = 0; i < count; i++)
        PMPI_Comm_free(&numbers[i]);
    return code;
}

/* Connect as a newcomer, after which `later` others come. */
int join_connect(const char *port, int later, MPI_Comm *result, const Watch *watch)
{
    Join *join = calloc(1, sizeof *join);
    strncpy(join->port, port, MPI_MAX_PORT_NAME - 1);
    join->count = later;
    return joined(connect_one, join, result, watch);
}

static int split_off(void *arg)
{
    Join *join = arg;
    int code = PMPI_Comm_create_group(join->comm, join->group, join->tag, &join->result);
    if (code == MPI_SUCCESS)
        PMPI_Comm_set_errhandler(join->result, MPI_ERRORS_RETURN);
    return code;
}

/* A communicator of some ranks; the others take no part. */
int join_split(MPI_Comm comm, const int *ranks, int count, int tag, MPI_Comm *result,
               const Watch *watch)
{
    if (count == 1)
        return *result = world_alone(), 0;
    MPI_Group all;
    Join *join = calloc(1, sizeof *join);
    join->comm = comm;
    join->tag = tag % 32768;
    PMPI_Comm_group(comm, &all);
    PMPI_Group_incl(all, count, ranks, &join->group);
    PMPI_Group_free(&all);
    return joined(split_off, join, result, watch);
}
