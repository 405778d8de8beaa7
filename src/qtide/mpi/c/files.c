/* Files of MPI, by collective calls that do not hang when a rank is lost.
 *
 * Before each call, a barrier notices who is gone already. The call then runs in a thread, which is given up if
 * a rank is lost in it: MPI does no further file operation in this process then.
 */
#define _GNU_SOURCE
#pragma GCC visibility push(default) /* these replace MPI's own */
#include "internal.h"

/* A file that is open, with a communicator of the same ranks. */
typedef struct Opened {
    MPI_File file;
    MPI_Comm comm;
    struct Opened *next;
} Opened;

static Opened *opened;

typedef struct {
    MPI_File file;
    MPI_Comm comm;
    char *name;
    int mode, count;
    MPI_Info info;
    MPI_Offset at;
    MPI_Datatype type, kind;
    void *into;
    const void *from;
    MPI_Status status;
    int code;
} FileCall;

static Opened **place_of(MPI_File file)
{
    Opened **place = &opened;
    while (*place != NULL && (*place)->file != file)
        place = &(*place)->next;
    return place;
}

/* Run a call; `terms` has its code, the file and the status afterwards. */
static int called(int (*function)(void *), FileCall *terms)
{
    Opened *each = terms->name == NULL ? *place_of(terms->file) : NULL;
    MPI_Comm comm = each != NULL ? each->comm : terms->comm;
    int code = comm != MPI_COMM_NULL ? MPI_Barrier(comm) : world_alive(job_watch());
    if (code != MPI_SUCCESS)
        return code;
    FileCall *call = malloc(sizeof *call);
    *call = *terms;
    if (world_call(function, call, job_watch()))
        return world_lost_code(); /* its thread may still use `call` */
    *terms = *call;
    free(call);
    return terms->code;
}

static int open_file(void *arg)
{
    FileCall *of = arg;
    of->code = PMPI_File_open(of->comm, of->name, of->mode, of->info, &of->file);
    if (of->code == MPI_SUCCESS)
        of->code = PMPI_Comm_dup(of->comm, &of->comm);
    return 0;
}

int MPI_File_open(MPI_Comm comm, const char *name, int mode, MPI_Info info, MPI_File *file)
{
    if (job_watch() == NULL)
        return PMPI_File_open(comm, name, mode, info, file);
    FileCall terms = {.comm = comm, .name = strdup(name), .mode = mode, .info = info};
    int code = called(open_file, &terms);
    if (code != MPI_SUCCESS)
        return code; /* MPI may still use the name */
    Opened *each = malloc(sizeof *each);
    *each = (Opened){terms.file, terms.comm, opened};
    opened = each;
    free(terms.name);
    *file = terms.file;
    return MPI_SUCCESS;
}

static int close_file(void *arg)
{
    FileCall *of = arg;
    of->code = PMPI_File_close(&of->file);
    return 0;
}

int MPI_File_close(MPI_File *file)
{
    FileCall terms = {.file = *file, .comm = MPI_COMM_NULL};
    Opened **place = place_of(*file), *each = *place;
    int code = job_watch() == NULL ? PMPI_File_close(&terms.file) : called(close_file, &terms);
    if (code != MPI_SUCCESS)
        return code;
    if (each != NULL) {
        *place = each->next;
        PMPI_Comm_free(&each->comm);
        free(each);
    }
    *file = terms.file;
    return MPI_SUCCESS;
}

/* `terms` are what the thread is told of the arguments, `call` the arguments that it uses. */
#define ON_FILE(name, parameters, arguments, terms, call, after)                                    \
    static int do_##name(void *arg)                                                                \
    {                                                                                              \
        FileCall *of = arg;                                                                        \
        of->code = PMPI_File_##name call;                                                          \
        return 0;                                                                                  \
    }                                                                                              \
    int MPI_File_##name parameters                                                                 \
    {                                                                                              \
        if (job_watch() == NULL)                                                                   \
            return PMPI_File_##name arguments;                                                     \
        FileCall told = terms;                                                                     \
        int code = called(do_##name, &told);                                                       \
        after;                                                                                     \
        return code;                                                                               \
    }
#define TOLD(...) {.file = file, .comm = MPI_COMM_NULL, __VA_ARGS__}

ON_FILE(set_size, (MPI_File file, MPI_Offset size), (file, size), TOLD(.at = size), (of->file, of->at), )
ON_FILE(preallocate, (MPI_File file, MPI_Offset size), (file, size), TOLD(.at = size), (of->file, of->at), )
ON_FILE(sync, (MPI_File file), (file), TOLD(.at = 0), (of->file), )
ON_FILE(set_atomicity, (MPI_File file, int flag), (file, flag), TOLD(.mode = flag), (of->file, of->mode), )
ON_FILE(set_view,
        (MPI_File file, MPI_Offset at, MPI_Datatype type, MPI_Datatype kind, const char *name, MPI_Info info),
        (file, at, type, kind, name, info),
        TOLD(.at = at, .type = type, .kind = kind, .info = info, .from = strdup(name)),
        (of->file, of->at, of->type, of->kind, of->from, of->info),
        if (code == MPI_SUCCESS) free((void *)told.from))

#define STATUS if (code == MPI_SUCCESS && status != MPI_STATUS_IGNORE) *status = told.status
#define READS(name)                                                                                 \
    ON_FILE(name, (MPI_File file, void *to, int count, MPI_Datatype type, MPI_Status *status),      \
            (file, to, count, type, status), TOLD(.into = to, .count = count, .type = type),        \
            (of->file, of->into, of->count, of->type, &of->status), STATUS)
#define WRITES(name)                                                                                \
    ON_FILE(name, (MPI_File file, const void *from, int count, MPI_Datatype type, MPI_Status *status), \
            (file, from, count, type, status), TOLD(.from = from, .count = count, .type = type),    \
            (of->file, of->from, of->count, of->type, &of->status), STATUS)
READS(read_all)
READS(read_ordered)
WRITES(write_all)
WRITES(write_ordered)
ON_FILE(read_at_all,
        (MPI_File file, MPI_Offset at, void *to, int count, MPI_Datatype type, MPI_Status *status),
        (file, at, to, count, type, status),
        TOLD(.at = at, .into = to, .count = count, .type = type),
        (of->file, of->at, of->into, of->count, of->type, &of->status), STATUS)
ON_FILE(write_at_all,
        (MPI_File file, MPI_Offset at, const void *from, int count, MPI_Datatype type, MPI_Status *status),
        (file, at, from, count, type, status),
        TOLD(.at = at, .from = from, .count = count, .type = type),
        (of->file, of->at, of->from, of->count, of->type, &of->status), STATUS)
