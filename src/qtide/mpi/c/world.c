/* MPI as a world of one process, and waits that can be given up.
 *
 * MPICH needs a process manager to begin. A thread of this process is one, so that every process is
 * a world of its own on every cluster, and worlds can be joined and left one by one.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CALL_LIMIT 20.0   /* seconds within which a blocking call has to return */
#define GRACE 4.0         /* seconds until a blocking call is abandoned */
#define END_LIMIT 10.0    /* seconds within which MPI has to end */
#define FIRST 100         /* tests of a request before looking at the other processes */
#define SPIN 0.002        /* seconds of tests without a pause after that */
#define NAP_LEAST 50e-6   /* seconds of the first pause */
#define NAP_MOST 1e-3     /* and of the longest: a long wait leaves the core to others */
#define NAP_SHARE 0.05    /* a pause's share of the time waited so far: it adds no more than that */
#define NOTICE 1.0        /* seconds within which a loss is known that MPI notices first */
#define MOVING 20e-6      /* a test that takes more CPU seconds has moved data: no pause */

static struct {
    bool begun, ended, abandoned, stuck;
    bool closed; /* whether MPI makes no communicator any more */
    bool launched;
    Launched launcher;
    int pmi;
    int lost_code;
    MPI_Comm own, alone;
    MPI_Request never;
    char nothing;
} world;

double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double used(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void nap(double seconds)
{
    nanosleep(&(struct timespec){0, (long)(1e9 * seconds)}, NULL);
}

/* -- the process manager ------------------------------------------------------------------------ */

static const char *pmi_answer(const char *line)
{
    static const char *const answers[][2] = {
        {"cmd=init", "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0"},
        {"cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024 rc=0"},
        {"cmd=get_appnum", "cmd=appnum appnum=0 rc=0"},
        {"cmd=get_universe_size", "cmd=universe_size size=1 rc=0"},
        {"cmd=barrier_in", "cmd=barrier_out rc=0"},
        {"cmd=put", "cmd=put_result rc=0"},
        {"cmd=get ", "cmd=get_result rc=-1 msg=unknown"},
        {"cmd=finalize", "cmd=finalize_ack rc=0"},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (strncmp(line, answers[i][0], strlen(answers[i][0])) == 0)
            return answers[i][1];
    return "cmd=error rc=-1";
}

static void *serve_pmi(void *unused)
{
    FILE *questions = fdopen(world.pmi, "r");
    char *line = NULL;
    size_t room = 0;
    unsigned long long name[2] = {0};
    FILE *random = fopen("/dev/urandom", "r");
    if (random == NULL || fread(name, sizeof name, 1, random) != 1)
        name[0] = (unsigned long long)getpid();
    if (random != NULL)
        fclose(random);
    while (getline(&line, &room, questions) > 0) {
        if (strncmp(line, "cmd=get_my_kvsname", 18) == 0)
            dprintf(world.pmi, "cmd=my_kvsname kvsname=qtide_%llx%llx rc=0\n", name[0], name[1]);
        else
            dprintf(world.pmi, "%s\n", pmi_answer(line));
    }
    return unused;
}

static int begin_pmi(void)
{
    static const char *const variables[] = {"PMI_FD", "PMI_RANK", "PMI_SIZE"};
    int values[3], ends[2], given = 0;
    for (int i = 0; i < 3; i++)
        given += getenv(variables[i]) != NULL && sscanf(getenv(variables[i]), "%d", &values[i]) == 1;
    world.launched = given == 3;
    world.launcher = (Launched){values[0], values[1], values[2]};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return fail(QTIDE_ERROR, "no socket for MPI's process manager");
    world.pmi = ends[0];
    char number[16];
    snprintf(number, sizeof number, "%d", ends[1]);
    setenv("PMI_FD", number, 1);
    setenv("PMI_RANK", "0", 1);
    setenv("PMI_SIZE", "1", 1);
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve_pmi, NULL))
        return fail(QTIDE_ERROR, "cannot start a thread");
    pthread_detach(thread);
    return 0;
}

/* Unlink MPICH's shared memory: no other process opens it, and a kill would leave it behind. */
static void unlink_segments(void)
{
    char *line = NULL, *file;
    size_t room = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && getline(&line, &room, maps) > 0)
        if ((file = strstr(line, "/dev/shm/mpich_shm_")) != NULL) {
            file[strcspn(file, " \n")] = 0;
            unlink(file);
        }
    free(line);
    if (maps != NULL)
        fclose(maps);
}

int world_begin(void)
{
    if (world.begun)
        return 0;
    if (begin_pmi())
        return QTIDE_ERROR;
    int provided;
    if (PMPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
        return fail(QTIDE_ERROR, "MPI does not begin");
    unsetenv("PMI_FD");
    unsetenv("PMI_RANK");
    unsetenv("PMI_SIZE");
    unlink_segments();
    if (provided != MPI_THREAD_MULTIPLE)
        return fail(QTIDE_ERROR, "this MPI library does not support threads");
    PMPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN); /* joined ones inherit it */
    PMPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    PMPI_Comm_dup(MPI_COMM_SELF, &world.own);
    PMPI_Comm_dup(MPI_COMM_SELF, &world.alone);
    PMPI_Irecv(&world.nothing, 1, MPI_BYTE, 0, 0, world.own, &world.never);
    int class;
    PMPI_Add_error_class(&class);
    PMPI_Add_error_code(class, &world.lost_code);
    PMPI_Add_error_string(world.lost_code, "ranks of the job are gone; call qtide_recover()");
    world.begun = true;
    return 0;
}

bool world_begun(void) { return world.begun && !world.ended; }
const Launched *world_launcher(void) { return world.launched ? &world.launcher : NULL; }
int world_lost_code(void) { return world.lost_code; }
MPI_Comm world_alone(void) { return world.alone; }
bool world_closed(void) { return world.closed; }

static int finalize(void *unused)
{
    (void)unused;
    PMPI_Cancel(&world.never);
    PMPI_Wait(&world.never, MPI_STATUS_IGNORE);
    PMPI_Comm_free(&world.own);
    PMPI_Comm_free(&world.alone);
    return PMPI_Finalize();
}

typedef struct {
    int (*function)(void *);
    void *arg;
    int result;
    bool ended;
    pthread_mutex_t lock;
    pthread_cond_t news;
} Call;

static void *run_call(void *arg)
{
    Call *call = arg;
    int result = call->function(call->arg);
    pthread_mutex_lock(&call->lock);
    call->result = result;
    call->ended = true;
    pthread_cond_broadcast(&call->news);
    pthread_mutex_unlock(&call->lock);
    return NULL;
}

static Call *started(int (*function)(void *), void *arg)
{
    Call *call = calloc(1, sizeof *call);
    *call = (Call){function, arg, 0, false, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
    pthread_t thread;
    if (pthread_create(&thread, NULL, run_call, call)) {
        free(call);
        return NULL;
    }
    pthread_detach(thread);
    return call;
}

static bool ended_within(Call *call, double seconds)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    double whole = (double)until.tv_nsec + 1e9 * seconds;
    until.tv_sec += (time_t)(whole / 1e9);
    until.tv_nsec = (long)whole % 1000000000;
    pthread_mutex_lock(&call->lock);
    while (!call->ended && pthread_cond_timedwait(&call->news, &call->lock, &until) == 0)
        continue;
    bool ended = call->ended;
    pthread_mutex_unlock(&call->lock);
    return ended;
}

int world_end(void)
{
    if (!world.begun || world.ended)
        return 0;
    world.ended = true;
    if (world.abandoned || world.stuck)
        return 0; /* MPI would wait for a call that never returns */
    Call *call = started(finalize, NULL);
    if (call == NULL || !ended_within(call, END_LIMIT))
        return fail(QTIDE_ERROR, "MPI did not end within %g s", END_LIMIT);
    return 0;
}

/* -- waits -------------------------------------------------------------------------------------- */

/* Let MPI send what is still in this process: it only does so while it is called. */
void world_progress(void)
{
    int flag;
    if (world.begun && !world.ended && !world.stuck)
        PMPI_Test(&world.never, &flag, MPI_STATUS_IGNORE);
}

static int progress_once(void *unused)
{
    (void)unused;
    world_progress();
    return 0;
}

/* MPICH agrees on the number of a new communicator with one call at a time: if two that are given up wait for
 * their turn or have it, no other call gets it. */
static int create_once(void *unused)
{
    MPI_Comm comm;
    (void)unused;
    return PMPI_Comm_dup(MPI_COMM_SELF, &comm) == MPI_SUCCESS ? PMPI_Comm_free(&comm) : MPI_ERR_OTHER;
}

/* Whether a function that should return at once does so beside a call that was abandoned. */
static bool returns(int (*function)(void *))
{
    Call *call = started(function, NULL);
    if (call == NULL || !ended_within(call, GRACE))
        return false;
    free(call);
    return true;
}

int world_alive(const Watch *watch)
{
    if (watch == NULL || control_watch(watch) == 0)
        return MPI_SUCCESS;
    control_settle();
    return world.lost_code;
}

/* The code of a call that has ended: that of a loss, if there is one. A call that has ended well after a
 * loss may have what a rank that gave up has changed since it sent it, so that is an error, too. */
static int ended_with(int code, const Watch *watch)
{
    int lost = world_alive(watch);
    for (double last = now() + NOTICE; code && !lost && watch && now() < last; nap(NAP_MOST))
        lost = world_alive(watch);
    return lost ? lost : code;
}

int world_until(int (*test)(void *, int *), void *arg, const Watch *watch)
{
    int done = 0, code;
    for (int i = 0; i < FIRST; i++)
        if ((code = test(arg, &done)) != MPI_SUCCESS || done)
            return ended_with(code, watch);
    double since = now();
    for (;;) {
        if (world_alive(watch) != MPI_SUCCESS)
            return world.lost_code;
        double before = used();
        if ((code = test(arg, &done)) != MPI_SUCCESS || done)
            return ended_with(code, watch);
        double time = now();
        double pause = NAP_SHARE * (time - since);
        if (used() - before > MOVING)
            since = time;
        else if (time - since < SPIN)
            sched_yield();
        else
            nap(pause < NAP_LEAST ? NAP_LEAST : pause < NAP_MOST ? pause : NAP_MOST);
    }
}

typedef struct {
    MPI_Request *request;
    MPI_Status *status;
} One;

static int test_one(void *arg, int *done)
{
    One *one = arg;
    return PMPI_Test(one->request, done, one->status);
}

int world_wait(MPI_Request *request, MPI_Status *status, const Watch *watch)
{
    One one = {request, status};
    return world_until(test_one, &one, watch);
}

int world_hangs(void)
{
    return fail(QTIDE_ERROR, "MPI hangs, as nodes were lost while processes were being connected; start the "
                             "program again: it goes on from what was saved last");
}

int world_call(int (*function)(void *), void *arg, const Watch *watch)
{
    Call *call = started(function, arg);
    if (call == NULL)
        return fail(QTIDE_ERROR, "cannot start a thread");
    double last = now() + CALL_LIMIT;
    int lost = 0;
    while (!lost && !ended_within(call, 0.002))
        if ((watch != NULL && control_watch(watch)) || now() > last)
            lost = 1;
    if (lost && !ended_within(call, GRACE)) {
        world.abandoned = true; /* its thread waits in MPI until the program ends */
        if (!returns(progress_once)) {
            world.stuck = true;
            return world_hangs();
        }
        world.closed = world.closed || !returns(create_once);
        return QTIDE_LOST;
    }
    int result = call->result;
    free(call);
    return lost ? QTIDE_LOST : result == MPI_SUCCESS ? 0 : QTIDE_LOST;
}
