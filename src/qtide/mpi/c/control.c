/* The connection to the helper of the root. */
#define _GNU_SOURCE
#include "internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ORDER_LIMIT 600.0 /* seconds that a member waits for a message of the root */
#define FINISH_LIMIT 200  /* seconds that the helper may take to give all nodes back */
#define SETTLE_LIMIT 90.0 /* seconds within which all ranks know of a loss, or are lost themselves */
#define SILENCE 5         /* seconds after which a host that does not answer counts as gone */
#define POLL_NS 1000000   /* between two calls of MPI while waiting for a message */

typedef struct Line {
    struct Line *next;
    char *text;
} Line;

static struct {
    int fd, identity;
    pid_t helper;
    FILE *helper_socket;
    FILE *input;
    pthread_mutex_t lock;
    pthread_cond_t news;
    int *lost;
    int lost_count, settled; /* of the lost ones, those that all other ranks know */
    bool all_lost, leaving;
    Line *orders, *answers, *verdicts;
    long ticket;
} control = {.fd = -1,
             .lock = PTHREAD_MUTEX_INITIALIZER,
             .news = PTHREAD_COND_INITIALIZER};

/* -- the helper --------------------------------------------------------------------------------- */

static const char *python(void)
{
    const char *named = getenv("QTIDE_PYTHON");
    return named && *named ? named : QTIDE_PYTHON;
}

/* The environment of the helper: this one's, and how to reach the launcher that started this process. */
static char **helper_environment(const Launched *launched, char variables[3][32])
{
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    char **all = calloc(count + 4, sizeof *all);
    memcpy(all, environ, sizeof *all * count);
    if (launched != NULL) {
        snprintf(variables[0], sizeof variables[0], "PMI_FD=%d", launched->fd);
        snprintf(variables[1], sizeof variables[1], "PMI_RANK=%d", launched->rank);
        snprintf(variables[2], sizeof variables[2], "PMI_SIZE=%d", launched->size);
        for (int i = 0; i < 3; i++)
            all[count++] = variables[i];
    }
    return all;
}

/* Start the helper; returns its first line. `words` are its arguments. A fork would copy the page tables
 * of a large program, and hold locks of MPI's threads for ever. */
char *control_start(const char *const *words, const char *first_line)
{
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return NULL;
    const Launched *launched = world_launcher();
    const char *argv[8] = {python(), "-m", "qtide.mpi.helper"};
    for (int i = 0; words[i] != NULL && i < 4; i++)
        argv[3 + i] = words[i];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 0);
    posix_spawnattr_t terms; /* an interrupt of the terminal is for the program, which then ends it */
    posix_spawnattr_init(&terms);
    posix_spawnattr_setflags(&terms, POSIX_SPAWN_SETPGROUP);
    char variables[3][32], **environment = helper_environment(launched, variables);
    int error = posix_spawnp(&control.helper, argv[0], &actions, &terms, (char **)argv, environment);
    free(environment);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&terms);
    close(ends[1]);
    if (launched != NULL)
        close(launched->fd);
    if (error) {
        fprintf(stderr, "qtide: cannot start %s: %s; set QTIDE_PYTHON to a Python that has qtide\n",
                argv[0], strerror(error));
        control.helper = 0;
        close(ends[0]);
        return NULL;
    }
    control.helper_socket = fdopen(ends[0], "r"); /* the helper ends with it */
    send(ends[0], first_line, strlen(first_line), MSG_NOSIGNAL);
    send(ends[0], "\n", 1, MSG_NOSIGNAL);
    char *line = NULL;
    size_t room = 0;
    if (getline(&line, &room, control.helper_socket) <= 0) {
        free(line);
        line = NULL;
    }
    return line;
}

/* -- the connection ----------------------------------------------------------------------------- */

static void append(Line **list, char *text)
{
    Line *line = malloc(sizeof *line);
    *line = (Line){NULL, text};
    while (*list != NULL)
        list = &(*list)->next;
    *list = line;
}

static void receive(char *text)
{
    int lost = (int)json_long(text, "lost", -1);
    pthread_mutex_lock(&control.lock);
    if (lost >= 0) {
        control.lost = realloc(control.lost, sizeof(int) * (size_t)(control.lost_count + 1));
        control.lost[control.lost_count] = lost;
        __atomic_add_fetch(&control.lost_count, 1, __ATOMIC_RELEASE);
        free(text);
    } else if (json_value(text, "answer") != NULL) {
        append(&control.answers, text);
    } else if (json_value(text, "success") != NULL) {
        append(&control.verdicts, text);
    } else {
        append(&control.orders, text);
    }
    pthread_cond_broadcast(&control.news);
    pthread_mutex_unlock(&control.lock);
    if (lost >= 0) /* from now on no call of this rank ends well */
        control_send("{\"noticed\": %d}", lost);
}

static void *listen_to_helper(void *unused)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, control.input) > 0)
        receive(strdup(line));
    if (!control.leaving && control.identity != 0)
        _exit(0); /* the root is gone */
    if (!control.leaving)
        fprintf(stderr, "qtide: the helper of the job is gone; the job goes on with its root alone\n");
    pthread_mutex_lock(&control.lock);
    control.all_lost = true;
    pthread_cond_broadcast(&control.news);
    pthread_mutex_unlock(&control.lock);
    return unused;
}

static void set_options(int fd)
{
    const int options[][3] = {{IPPROTO_TCP, TCP_NODELAY, 1},
                              {SOL_SOCKET, SO_KEEPALIVE, 1},
                              {IPPROTO_TCP, TCP_KEEPIDLE, 1},
                              {IPPROTO_TCP, TCP_KEEPINTVL, 1},
                              {IPPROTO_TCP, TCP_KEEPCNT, SILENCE - 1},
                              {IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * SILENCE}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        setsockopt(fd, options[i][0], options[i][1], &options[i][2], sizeof(int));
}

/* Connect as the member that an invitation names: host, port, number, generation, key. */
int control_connect(const char *invitation, bool ready)
{
    char host[256], port[16], key[128];
    int generation;
    if (sscanf(invitation, "%255s %15s %d %d %127s", host, port, &control.identity, &generation,
               key) != 5)
        return fail(QTIDE_ERROR, "the invitation to the job is not complete");
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int fd = -1;
    if (getaddrinfo(host, port, &hints, &found) == 0) {
        fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen)) {
            close(fd);
            fd = -1;
        }
        freeaddrinfo(found);
    }
    if (fd < 0) {
        if (control.identity != 0)
            _exit(0); /* a root that is gone needs no newcomers */
        return fail(QTIDE_ERROR, "cannot connect to the helper at %s port %s", host, port);
    }
    set_options(fd);
    control.fd = fd;
    control.input = fdopen(fd, "r");
    control_send("{\"hello\": %d, \"generation\": %d, \"key\": \"%s\", \"ready\": %s}",
                 control.identity, generation, key, ready ? "true" : "false");
    pthread_t thread;
    if (pthread_create(&thread, NULL, listen_to_helper, NULL))
        return fail(QTIDE_ERROR, "cannot start a thread");
    pthread_detach(thread);
    return 0;
}

void control_send(const char *format, ...)
{
    static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;
    Text text = {0};
    va_list list;
    va_start(list, format);
    text_print(&text, format, list);
    va_end(list);
    text_add(&text, "\n");
    pthread_mutex_lock(&writing);
    for (size_t done = 0; done < text.used;) {
        ssize_t sent = send(control.fd, text.bytes + done, text.used - done, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            break; /* the listening thread notices */
        done += (size_t)sent;
    }
    pthread_mutex_unlock(&writing);
    free(text.bytes);
}

void control_ready(void) { control_send("{\"ready\": true}"); }

/* Take the first line of a list whose `key` is `value`; any line if `key` is NULL. */
static char *taken(Line **list, const char *key, long value)
{
    for (; *list != NULL; list = &(*list)->next) {
        if (key != NULL && json_long((*list)->text, key, -1) != value)
            continue;
        Line *line = *list;
        char *text = line->text;
        *list = line->next;
        free(line);
        return text;
    }
    return NULL;
}

/* Wait for a line while MPI makes progress; NULL after the limit, or if the helper is gone. */
static char *wait_for(Line **list, const char *key, long value, double limit)
{
    double last = now() + limit;
    for (;;) {
        pthread_mutex_lock(&control.lock);
        char *found = taken(list, key, value);
        bool over = control.all_lost || now() > last;
        if (found == NULL && !over) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += POLL_NS;
            if (until.tv_nsec >= 1000000000) {
                until.tv_sec++;
                until.tv_nsec -= 1000000000;
            }
            pthread_cond_timedwait(&control.news, &control.lock, &until);
            found = taken(list, key, value);
        }
        pthread_mutex_unlock(&control.lock);
        if (found != NULL || over)
            return found;
        world_progress();
    }
}

char *control_ask(double limit, const char *what, const char *format, ...)
{
    Text text = {0};
    va_list list;
    va_start(list, format);
    text_print(&text, format, list);
    va_end(list);
    long ticket = __atomic_add_fetch(&control.ticket, 1, __ATOMIC_RELAXED);
    control_send("{\"ask\": \"%s\", \"ticket\": %ld%s%s}", what, ticket, text.used ? ", " : "",
                 text.used ? text.bytes : "");
    free(text.bytes);
    return wait_for(&control.answers, "answer", ticket, limit);
}

char *control_order(void) { return wait_for(&control.orders, NULL, 0, ORDER_LIMIT); }

int control_verdict(int change)
{
    char *line = wait_for(&control.verdicts, "change", change, ORDER_LIMIT);
    int made = line != NULL && json_long(line, "success", 0);
    free(line);
    return made;
}

static bool given_up(int change)
{
    for (Line *line = control.verdicts; line != NULL; line = line->next)
        if (json_long(line->text, "change", -1) == change)
            return json_long(line->text, "success", 0) == 0;
    return false;
}

bool control_is_lost(int member)
{
    pthread_mutex_lock(&control.lock);
    bool lost = control.all_lost && member != control.identity;
    for (int i = 0; i < control.lost_count && !lost; i++)
        lost = control.lost[i] == member;
    pthread_mutex_unlock(&control.lock);
    return lost;
}

int control_watch(const Watch *watch)
{
    if (__atomic_load_n(&control.lost_count, __ATOMIC_ACQUIRE) || control.all_lost)
        for (int i = 0; i < watch->count; i++)
            if (control_is_lost(watch->members[i]))
                return fail(QTIDE_LOST, "rank %d of the job is gone; call qtide_recover()", i);
    if (watch->change) {
        pthread_mutex_lock(&control.lock);
        bool over = given_up(watch->change);
        pthread_mutex_unlock(&control.lock);
        if (over || (watch->last > 0 && now() > watch->last))
            return fail(QTIDE_LOST, "the change of the job's size was given up");
    }
    return 0;
}

/* A rank that gives a call up lets the program change what it was about to send. It may do so only
 * when no other rank takes what comes late for an answer. */
void control_settle(void)
{
    int known = __atomic_load_n(&control.lost_count, __ATOMIC_ACQUIRE);
    if (known == __atomic_load_n(&control.settled, __ATOMIC_ACQUIRE) || control.all_lost)
        return;
    free(control_ask(SETTLE_LIMIT, "settle", "%s", ""));
    __atomic_store_n(&control.settled, known, __ATOMIC_RELEASE);
}

bool control_gone(void) { return control.all_lost; }

int control_identity(void) { return control.identity; }

void control_leave(void)
{
    control.leaving = true;
    control_send("{\"leave\": true}");
}

void control_finish(void)
{
    control.leaving = true;
    if (control.helper == 0)
        return;
    control_send("{\"ask\": \"finish\"}");
    int status;
    for (int i = 0; i < 100 * FINISH_LIMIT && waitpid(control.helper, &status, WNOHANG) == 0; i++)
        usleep(10000);
    fclose(control.helper_socket);
    control.helper = 0;
}
