/* The members of the job, and the data that moves between them.
 *
 * The root decides on every change. Each member does its part while keeping what it has, reports to
 * the helper, and learns whether the change is made.
 */
#define _GNU_SOURCE
#include "internal.h"

#include <limits.h>
#include <unistd.h>

#define CHANGE_LIMIT 120.0 /* seconds that a change may take */
#define PIECE (64UL << 20) /* bytes of state that go to all ranks at once */
#define SLOWEST 10e6       /* bytes per second: a slower move counts as stuck */

int bcast(void *data, size_t bytes, MPI_Comm comm, const Watch *watch)
{
    int rank, code = MPI_SUCCESS;
    PMPI_Comm_rank(comm, &rank);
    for (size_t done = 0; done < bytes && code == MPI_SUCCESS;) {
        size_t piece = bytes - done < PIECE ? bytes - done : PIECE;
        MPI_Request request;
        Landing landing = {0};
        landing_block(&landing, 0, (MPI_Aint)piece, MPI_BYTE);
        void *own = landing_address(&landing, (char *)data + done, rank == 0);
        code = PMPI_Ibcast(own, (int)piece, MPI_BYTE, 0, comm, &request);
        code = landing_wait(&landing, code, &request, watch);
        done += piece;
    }
    return code == MPI_SUCCESS ? 0 : QTIDE_LOST;
}

int barrier(MPI_Comm comm, const Watch *watch)
{
    MPI_Request request;
    if (PMPI_Ibarrier(comm, &request) != MPI_SUCCESS ||
        world_wait(&request, MPI_STATUS_IGNORE, watch) != MPI_SUCCESS)
        return QTIDE_LOST;
    return 0;
}

/* Give all ranks the root's text; free() the result. */
char *bcast_text(const char *text, MPI_Comm comm, const Watch *watch)
{
    int64_t length = text != NULL ? (int64_t)strlen(text) : 0;
    if (bcast(&length, sizeof length, comm, watch))
        return NULL;
    char *copy = calloc((size_t)length + 1, 1);
    if (text != NULL)
        memcpy(copy, text, (size_t)length);
    if (bcast(copy, (size_t)length, comm, watch)) {
        free(copy);
        return NULL;
    }
    return copy;
}

/* -- members ------------------------------------------------------------------------------------ */

void adopt(MPI_Comm comm, const int *members, int size)
{
    int *copy = malloc(sizeof(int) * (size_t)size);
    memcpy(copy, members, sizeof(int) * (size_t)size);
    free(job.members);
    job.members = copy;
    job.size = size;
    job.comm = comm;
    PMPI_Comm_rank(comm, &job.rank);
    job.watch = (Watch){copy, size, 0, 0};
}

/* Free the communicator before a change. */
static void drop(MPI_Comm comm)
{
    if (comm != world_alone())
        PMPI_Comm_free(&comm);
}

static Watch change_watch(const int *members, int size)
{
    double limit = CHANGE_LIMIT + (double)arrays_bytes() / SLOWEST;
    return (Watch){members, size, job.change, is_root() ? now() + limit : 0};
}

/* Report how this rank's part of a change went; returns whether the change is made. If it is, the end
 * of those who leave is no loss. */
static bool agree(int code, const int *members, int size, const int *leaving, int count)
{
    control_send("{\"change\": %d, \"success\": %s}", job.change, code ? "false" : "true");
    if (is_root()) {
        Text all = {0}, some = {0};
        text_add_numbers(&all, members, size);
        text_add_numbers(&some, leaving, count);
        free(control_ask(CHANGE_LIMIT + 10, "decide",
                         "\"change\": %d, \"members\": %s, \"leaving\": %s", job.change, all.bytes,
                         some.bytes));
        free(all.bytes);
        free(some.bytes);
    }
    return control_verdict(job.change) && code == 0;
}

/* Let the root find out who is left, and tell all of them; the number of those who are. */
static int told_who_is_left(int **left)
{
    if (is_root()) {
        Text text = {0};
        text_add_numbers(&text, job.members, job.size);
        job.change++;
        free(control_ask(ASK_LIMIT, "regroup", "\"change\": %d, \"members\": %s", job.change,
                         text.bytes));
        free(text.bytes);
    }
    char *order = control_order();
    if (order == NULL)
        return fail(QTIDE_ERROR, "the root of the job sent nothing");
    job.change = (int)json_long(order, "regroup", job.change);
    int count = json_longs(order, "members", left);
    free(order);
    return count;
}

/* Go on with some of the members; 0, or 1 if one of them was lost meanwhile. The old communicator is
 * abandoned: it cannot be freed. */
static int separate(const int *left, int count)
{
    if (count > 1 && world_closed()) {
        if (is_root())
            return world_hangs();
        _exit(1); /* the others go on without this one */
    }
    int *ranks = malloc(sizeof(int) * (size_t)(count + 1)), used = 0;
    for (int i = 0; i < job.size; i++)
        for (int j = 0; j < count; j++)
            if (job.members[i] == left[j])
                ranks[used++] = i;
    Watch watch = change_watch(left, count);
    MPI_Comm raw = MPI_COMM_NULL;
    int code = join_split(job.comm, ranks, count, job.change, &raw, &watch);
    bool made = agree(code, left, count, NULL, 0);
    if (made)
        adopt(raw, left, count);
    free(ranks);
    return made ? 0 : code == QTIDE_ERROR ? QTIDE_ERROR : 1;
}

/* Make a communicator of those who are left; 0 if it is made, 1 if another one was lost meanwhile. */
int regroup(void)
{
    if (is_root() && control_gone()) { /* all others end with the helper */
        adopt(world_alone(), (int[]){0}, 1);
        return 0;
    }
    int *left, count = told_who_is_left(&left);
    if (count < 0)
        return count;
    int code = separate(left, count);
    free(left);
    return code;
}

/* Make a communicator of the same members after a change that was given up: its messages may still be
 * on their way on the old one, and a later call would take them for its own. */
static int renew(void)
{
    if (job.size == 1)
        return 0;
    int *left, count = told_who_is_left(&left), all = job.size;
    if (count < 0)
        return control_gone() ? QTIDE_LOST : count;
    int code = count < all ? QTIDE_LOST : separate(left, count);
    free(left);
    return code == 1 ? QTIDE_LOST : code;
}

/* Give newcomers, the ranks from `old_size` on, the state; refuse one that has registered others. */
static int share_state(MPI_Comm comm, int rank, int old_size, const Watch *watch)
{
    char *own = registered(), *others = bcast_text(own, comm, watch);
    if (others == NULL)
        return QTIDE_LOST;
    bool same = strcmp(own, others) == 0;
    if (!same && rank >= old_size) {
        fprintf(stderr, "qtide: a newcomer has registered\n%sbut the others have\n%s", own, others);
        exit(1);
    }
    free(own);
    free(others);
    for (int i = 0; i < job.state_count; i++) {
        State *state = &job.states[i];
        void *to = rank == 0 || rank >= old_size ? state->buffer : malloc(state->bytes);
        if (bcast(to, state->bytes, comm, watch))
            return QTIDE_LOST;
        if (to != state->buffer)
            free(to);
    }
    return 0;
}

static int move_all(MPI_Comm comm, int old_size, int new_size, const Watch *watch)
{
    double began = now();
    for (int i = 0; i < array_count; i++)
        if (array_move(arrays[i], comm, old_size, new_size, watch))
            return QTIDE_LOST;
    int code = 0;
    job.changing = watch;
    for (int i = 0; i < job.layout_count && code == 0; i++)
        code = job.layouts[i].function(QTIDE_MOVE, comm, old_size, new_size, job.layouts[i].extra);
    job.changing = NULL;
    job.move = now() - began;
    return code ? QTIDE_LOST : 0;
}

static void settle(bool made, MPI_Comm comm, int old_size, int new_size, int rank)
{
    for (int i = 0; i < array_count; i++)
        if (arrays[i]->moved != NULL)
            array_settle(arrays[i], made, rank, new_size);
    for (int i = 0; i < job.layout_count; i++)
        job.layouts[i].function(made ? QTIDE_KEEP : QTIDE_DROP, comm, old_size, new_size,
                                job.layouts[i].extra);
}

/* Share state and data over the communicator of old and new members, and adopt it if all could. */
static int finish_growth(MPI_Comm raw, int code, int old_size, const int *members, int size,
                         const Watch *watch)
{
    int rank = -1;
    if (code == 0) {
        PMPI_Comm_rank(raw, &rank);
        code = share_state(raw, rank, old_size, watch);
    }
    if (code == 0)
        code = move_all(raw, old_size, size, watch);
    bool made = agree(code, members, size, NULL, 0);
    MPI_Comm before = job.comm;
    settle(made, made ? raw : before, old_size, made ? size : old_size, rank);
    if (made) {
        adopt(raw, members, size);
        drop(before);
    }
    return made ? 1 : code == QTIDE_ERROR ? QTIDE_ERROR : 0;
}

/* Let newcomers join; 1 if they have, 0 if the change was given up. */
int grow(const int *newcomers, int count, const char *site)
{
    int old_size = job.size, size = old_size + count;
    int *members = malloc(sizeof(int) * (size_t)size);
    memcpy(members, job.members, sizeof(int) * (size_t)old_size);
    memcpy(members + old_size, newcomers, sizeof(int) * (size_t)count);
    job.change++;
    double began = now();
    Watch watch = change_watch(members, size);
    MPI_Comm raw = MPI_COMM_NULL, *pairs = NULL;
    char **ports = NULL;
    int code = 0;
    if (is_root()) {
        ports = join_open(count);
        pairs = calloc((size_t)count, sizeof *pairs);
        Text order = {0};
        text_add(&order, "\"join\": [");
        for (int i = 0; i < count; i++) {
            text_add(&order, i ? "," : "");
            text_add_string(&order, ports[i]);
        }
        text_add(&order, "], \"change\": %d, \"site\": ", job.change);
        text_add_string(&order, site);
        text_add(&order, ", \"members\": ");
        text_add_numbers(&order, members, size);
        text_add(&order, ", \"new\": ");
        text_add_numbers(&order, newcomers, count);
        free(control_ask(ASK_LIMIT, "join", "%s", order.bytes));
        free(order.bytes);
        code = join_accept(ports, count, pairs, &watch);
    }
    /* only the root accepts; the others wait where a wait can be given up */
    if (code == 0)
        code = barrier(job.comm, &watch);
    if (code == 0)
        code = join_extend(job.comm, pairs, count, &raw, &watch);
    job.connect = now() - began;
    int made = finish_growth(raw, code, old_size, members, size, &watch);
    if (ports != NULL)
        join_close(ports, count, made == 1);
    free(pairs);
    free(members);
    return made == 0 ? renew() : made;
}

/* Join as a newcomer or a founder, and get the state and the data. */
int arrive(void)
{
    char *order = control_order(), **ports;
    int *members, *new, place = 0;
    if (order == NULL)
        return fail(QTIDE_ERROR, "the root of the job sent nothing");
    job.change = (int)json_long(order, "change", 0);
    int size = json_longs(order, "members", &members), count = json_longs(order, "new", &new);
    if (json_strings(order, "join", &ports) != count || count == 0 || size < count)
        return fail(QTIDE_ERROR, "the order of the root cannot be read: %s", order);
    job.awaited = json_string(order, "site");
    while (new[place] != control_identity())
        place++;
    Watch watch = change_watch(members, size);
    MPI_Comm raw = MPI_COMM_NULL;
    int code = join_connect(ports[place], count - place - 1, &raw, &watch);
    if (finish_growth(raw, code, size - count, members, size, &watch) != 1)
        _exit(0); /* the growth was given up */
    for (int i = 0; i < count; i++)
        free(ports[i]);
    free(ports);
    free(members);
    free(new);
    free(order);
    return 0;
}

static void leave(void)
{
    control_leave();
    job.active = false;
    world_end();
    exit(0);
}

/* Let the last members leave so that `size` stay. */
int shrink(int size)
{
    job.change++;
    int old_size = job.size, *members = malloc(sizeof(int) * (size_t)old_size);
    int *ranks = malloc(sizeof(int) * (size_t)size);
    memcpy(members, job.members, sizeof(int) * (size_t)old_size);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    Watch watch = change_watch(members, old_size);
    job.connect = 0;
    MPI_Comm raw = MPI_COMM_NULL, before = job.comm;
    int code = move_all(job.comm, old_size, size, &watch);
    if (code == 0 && job.rank < size)
        code = join_split(job.comm, ranks, size, job.change, &raw, &watch);
    bool made = agree(code, members, old_size, members + size, old_size - size);
    settle(made, made && raw != MPI_COMM_NULL ? raw : before, old_size, made ? size : old_size, job.rank);
    if (made && job.rank >= size)
        leave();
    if (made) {
        adopt(raw, members, size);
        drop(before);
    }
    free(members);
    free(ranks);
    return made ? 1 : code == QTIDE_ERROR ? QTIDE_ERROR : renew();
}
