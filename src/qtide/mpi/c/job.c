/* The job of this process: its beginning and end, and what its root decides. */
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <unistd.h>

Job job = {.comm = MPI_COMM_NULL};

static char message[1024];

int fail(int code, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    return code;
}

const char *qtide_message(void) { return message; }
MPI_Comm qtide_comm(void) { return job.comm; }

int qtide_comm_f(void)
{
#ifdef MPI_ABI_VERSION /* MPI 5's ABI has another name for it */
    return PMPI_Comm_toint(job.comm);
#else
    return (int)PMPI_Comm_c2f(job.comm);
#endif
}

int qtide_rank(void) { return job.rank; }
int qtide_size(void) { return job.size; }
int qtide_newcomer(void) { return job.newcomer; }
int qtide_is_lost(int code) { return world_begun() && code == world_lost_code(); }

const Watch *job_watch(void)
{
    if (job.changing != NULL) /* blocking and non-blocking collectives do not match each other */
        return job.changing;
    return job.active && job.size > 1 ? &job.watch : NULL;
}

bool is_root(void) { return control_identity() == 0; }

/* Ask the helper for something that has no answer but an error. */
static int told(char *answer)
{
    if (answer == NULL)
        return fail(QTIDE_ERROR, "the helper of the job does not answer");
    char *error = json_string(answer, "error");
    free(answer);
    if (error == NULL)
        return 0;
    fail(QTIDE_ERROR, "%s", error);
    free(error);
    return QTIDE_ERROR;
}

/* -- decisions ---------------------------------------------------------------------------------- */

static void record(const int *new, int new_count, const int *left, int left_count, double began)
{
    Text joined = {0}, gone = {0};
    text_add_numbers(&joined, new, new_count);
    text_add_numbers(&gone, left, left_count);
    Text parts = {0};
    if (new_count)
        text_add(&parts, "\"connect\": %.6f, ", job.connect);
    text_add(&parts, "\"move\": %.6f", job.move);
    free(control_ask(ASK_LIMIT, "changed",
                     "\"new\": %s, \"left\": %s, \"total\": %.6f, \"parts\": {%s}", joined.bytes,
                     gone.bytes, now() - began, parts.bytes));
    free(joined.bytes);
    free(gone.bytes);
    free(parts.bytes);
}

/* How many of so many newcomers can join: none, once MPI makes no communicator any more. */
static int takes_in(int newcomers)
{
    static bool told_so;
    if (newcomers == 0 || !world_closed())
        return newcomers;
    if (!told_so)
        fprintf(stderr, "qtide: nodes were lost while they joined, so MPI can join no others; the job goes on "
                        "with those that it has\n");
    told_so = true;
    free(control_ask(ASK_LIMIT, "cancel", "%s", ""));
    return 0;
}

/* Carry out what the root's helper has decided: `line` is its answer. */
static int follow(char *line, const char *site)
{
    int *terms = NULL, head[2] = {0, 0}, code = 0;
    double began = now();
    if (is_root()) {
        char *error = line == NULL ? strdup("the helper of the job does not answer")
                                   : json_string(line, "error");
        if (error != NULL) {
            fail(QTIDE_ERROR, "%s", error);
        } else {
            head[0] = takes_in(json_longs(line, "new", &terms));
            head[1] = (int)json_long(line, "shrink", 0);
        }
        free(error);
        free(line);
    }
    if (job.size > 1 && bcast(head, sizeof head, job.comm, &job.watch))
        return QTIDE_LOST;
    if (!is_root() && head[0])
        terms = malloc(sizeof(int) * (size_t)head[0]);
    if (head[0] && job.size > 1 && bcast(terms, sizeof(int) * (size_t)head[0], job.comm, &job.watch))
        return QTIDE_LOST;
    if (head[0]) {
        code = grow(terms, head[0], site);
        if (is_root() && code == 1)
            record(terms, head[0], NULL, 0, began);
        else if (is_root())
            free(control_ask(ASK_LIMIT, "cancel", "%s", ""));
    } else if (head[1]) {
        int left = job.size - head[1], *leaving = malloc(sizeof(int) * (size_t)left);
        memcpy(leaving, job.members + head[1], sizeof(int) * (size_t)left);
        code = shrink(head[1]);
        if (is_root() && code == 1)
            record(NULL, 0, leaving, left, began);
        free(leaving);
    }
    free(terms);
    return code < 0 ? code : 0;
}

static const char *site_of(const char *file, int line)
{
    static char site[256];
    const char *name = strrchr(file, '/');
    if (*file == 0)
        return "";
    snprintf(site, sizeof site, "%s:%d", name ? name + 1 : file, line);
    return site;
}

int qtide_begin(void)
{
    job.begun = job.active;
    if (!job.arriving)
        return job.active ? 0 : fail(QTIDE_ERROR, "call qtide_init() first");
    control_ready();
    job.arriving = false;
    int code = arrive();
    job.completing = code == 0;
    return code;
}

/* The beginning of every collective: 1 if it completes a newcomer's arrival, 0 to go on. */
static int entered(const char *site)
{
    int code = qtide_begin();
    if (code || !job.completing)
        return code;
    job.completing = false;
    if (*site && job.awaited != NULL && *job.awaited && strcmp(site, job.awaited)) {
        fprintf(stderr,
                "qtide: a newcomer came to %s, but the others wait for it at %s; let that call be "
                "the first, at the head of the loop\n",
                site, job.awaited);
        exit(1);
    }
    return 1;
}

int qtide_expand_at(int to, int least, double wait, const char *file, int line)
{
    const char *site = site_of(file, line);
    int code = entered(site);
    if (code)
        return code < 0 ? code : job.size;
    char *answer = NULL;
    if (is_root()) {
        Text text = {0};
        text_add_numbers(&text, job.members, job.size);
        answer = control_ask(ASK_LIMIT + wait, "grow",
                             "\"to\": %d, \"least\": %d, \"wait\": %.6f, \"members\": %s", to, least,
                             wait, text.bytes);
        free(text.bytes);
    }
    code = follow(answer, site);
    return code < 0 ? code : job.size;
}

int qtide_shrink_at(int to, const char *file, int line)
{
    int code = entered(site_of(file, line));
    if (code)
        return code < 0 ? code : job.size;
    to = to < job.least ? job.least : to;
    if (is_root())
        free(control_ask(ASK_LIMIT, "cancel", "%s", ""));
    if (to >= job.size)
        return job.size;
    double began = now();
    int left = job.size - to, *leaving = malloc(sizeof(int) * (size_t)left);
    memcpy(leaving, job.members + to, sizeof(int) * (size_t)left);
    code = shrink(to);
    if (code == 1 && is_root())
        record(NULL, 0, leaving, left, began);
    free(leaving);
    return code < 0 ? code : code == 0 ? control_watch(&job.watch) ? QTIDE_LOST : job.size : job.size;
}

int qtide_check_at(const char *file, int line)
{
    const char *site = site_of(file, line);
    int code = entered(site), before = job.size;
    if (code)
        return code;
    code = follow(is_root() ? control_ask(ASK_LIMIT, "check", "%s", "") : NULL, site);
    return code < 0 ? code : job.size != before;
}

int qtide_cancel(void)
{
    return is_root() ? told(control_ask(ASK_LIMIT, "cancel", "%s", "")) : 0;
}

int qtide_policy(const char *name)
{
    Text text = {0};
    text_add_string(&text, name);
    int code = is_root() ? told(control_ask(ASK_LIMIT, "policy", "\"name\": %s", text.bytes)) : 0;
    free(text.bytes);
    return code;
}

int qtide_phase(const char *name, double seconds)
{
    Text text = {0};
    text_add_string(&text, name);
    int code = is_root() ? told(control_ask(ASK_LIMIT, "phase", "\"name\": %s, \"seconds\": %.6f",
                                            text.bytes, seconds)) : 0;
    free(text.bytes);
    return code;
}

/* -- beginning and end -------------------------------------------------------------------------- */

/* The line that tells the helper about this program. */
static char *introduction(void)
{
    char words[65536], folder[PATH_MAX], executable[PATH_MAX] = "";
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, words, sizeof words - 1);
    if (fd >= 0)
        close(fd);
    words[length > 0 ? length : 0] = 0;
    if (readlink("/proc/self/exe", executable, sizeof executable - 1) < 0 ||
        getcwd(folder, sizeof folder) == NULL)
        return NULL;
    Text text = {0};
    text_add(&text, "{\"sizes\": [%d, %d, %d], \"start\": ", job.least, job.preferred, job.most);
    text_add_string(&text, folder);
    text_add(&text, ", \"executable\": ");
    text_add_string(&text, executable);
    text_add(&text, ", \"program\": [");
    for (const char *word = words; word < words + length; word += strlen(word) + 1) {
        text_add(&text, word == words ? "" : ", ");
        text_add_string(&text, word);
    }
    text_add(&text, "]}");
    return text.bytes;
}

/* Find out now whether MPI can join processes: MPICH 4.0 cannot over UCX, and MPICH 5.0 only where the
 * address of a process fits into a port's name. Open MPI opens a port, but then needs a server. */
static int can_join(void)
{
#ifdef OPEN_MPI
    return fail(QTIDE_ERROR, "Open MPI cannot join processes that were started alone: build libqtide and "
                             "the program with MPICH, or give qtide_init() at most 1 node");
#endif
    char port[MPI_MAX_PORT_NAME], text[MPI_MAX_ERROR_STRING];
    int length = 0, code = PMPI_Open_port(MPI_INFO_NULL, port);
    if (code == MPI_SUCCESS)
        return PMPI_Close_port(port);
    PMPI_Error_string(code, text, &length);
    for (int i = 0; i < length; i++)
        text[i] = text[i] == '\n' ? ' ' : text[i];
    return fail(QTIDE_ERROR,
                "this MPI cannot open a port, so no process can join: %.300s; with MPICH 5, compile "
                "with mpicc_abi, or set MPIR_CVAR_CH4_NETMOD=ofi",
                text);
}

/* Begin as the root, with all processes that a launcher has started with this one. */
static int found_job(void)
{
    if (job.most > 1 && can_join())
        return QTIDE_ERROR;
    const char *none[] = {NULL};
    char *first = introduction(), *line = control_start(none, first != NULL ? first : "{}");
    free(first);
    if (line == NULL)
        return fail(QTIDE_ERROR, "the helper of the job did not start");
    char *refused = json_string(line, "refused"), *invitation = json_string(line, "invitation");
    if (refused != NULL || invitation == NULL)
        return fail(QTIDE_ERROR, "%s", refused != NULL ? refused : "the helper sent no invitation");
    job.checkpoint = json_string(line, "checkpoint");
    int size = (int)json_long(line, "size", 1), code = control_connect(invitation, true);
    free(invitation);
    free(line);
    if (code)
        return code;
    if (job.checkpoint != NULL && *job.checkpoint)
        fprintf(stderr, "qtide: goes on from what was saved in %s\n", job.checkpoint);
    if (size > 1) {
        int *others = malloc(sizeof(int) * (size_t)(size - 1));
        for (int i = 1; i < size; i++)
            others[i - 1] = i;
        int made = grow(others, size - 1, "");
        free(others);
        if (made != 1)
            return fail(QTIDE_ERROR, "a process of the job was lost while it began; start it again");
    }
    return 0;
}

/* Begin as one of the processes that were started with the root. */
static int begin_as_founder(void)
{
    const char *words[] = {"founder", NULL};
    char *line = control_start(words, "");
    char *invitation = line != NULL ? json_string(line, "invitation") : NULL;
    if (invitation == NULL)
        return fail(QTIDE_ERROR, "the launcher of this program did not answer");
    int code = control_connect(invitation, true);
    free(line);
    free(invitation);
    if (code == 0)
        code = arrive();
    return code;
}

int qtide_init(int least, int preferred, int most)
{
    if (job.active)
        return fail(QTIDE_ERROR, "qtide_init() was called before");
    if (least < 1 || preferred < least || most < preferred)
        return fail(QTIDE_ERROR, "qtide_init() needs 1 <= least <= preferred <= most, not %d, %d, %d",
                    least, preferred, most);
    job.least = least;
    job.preferred = preferred;
    job.most = most;
    char *invitation = getenv("QTIDE_JOIN");
    invitation = invitation ? strdup(invitation) : NULL;
    unsetenv("QTIDE_JOIN");
    if (world_begin())
        return QTIDE_ERROR;
    adopt(world_alone(), (int[]){0}, 1);
    const Launched *launched = world_launcher();
    int code;
    if (invitation != NULL) {
        job.newcomer = job.arriving = true;
        code = control_connect(invitation, false);
        free(invitation);
    } else if (launched != NULL && launched->rank > 0) {
        code = begin_as_founder();
    } else {
        code = found_job();
    }
    if (code == 0 && !job.newcomer && job.size > 1) {
        char *path = bcast_text(job.checkpoint, job.comm, &job.watch);
        free(job.checkpoint);
        job.checkpoint = path;
    }
    if (code) {
        fprintf(stderr, "qtide: %s\n", message);
        return code;
    }
    job.active = true;
    return 0;
}

int qtide_finalize(void)
{
    if (!job.active)
        return world_end();
    int code = job.size > 1 ? barrier(job.comm, &job.watch) : 0;
    if (!is_root())
        control_leave();
    job.active = false;
    if (code == 0 && job.comm != world_alone())
        PMPI_Comm_free(&job.comm);
    if (is_root())
        control_finish();
    world_end();
    return code;
}

