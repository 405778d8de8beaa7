/* The connection to the helper of the root, and messages as lines of JSON. */
#define _GNU_SOURCE
#include "internal.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ORDER_LIMIT 600.0 /* seconds that a member waits for a message of the root */
#define FINISH_LIMIT 200  /* seconds that the helper may take to give all nodes back */
#define SILENCE 5         /* seconds after which a host that does not answer counts as gone */
#define POLL_NS 1000000   /* between two calls of MPI while waiting for a message */

typedef struct Line {
    struct Line *next;
    char *text;
} Line;

static struct {
    int fd, identity;
    pid_t helper;
    int helper_input;
    FILE *input;
    pthread_mutex_t lock;
    pthread_cond_t news;
    int *lost;
    int lost_count;
    bool all_lost, leaving;
    Line *orders, *answers, *verdicts;
    long ticket;
} control = {.fd = -1,
             .helper_input = -1,
             .lock = PTHREAD_MUTEX_INITIALIZER,
             .news = PTHREAD_COND_INITIALIZER};

/* -- JSON --------------------------------------------------------------------------------------- */

static void text_room(Text *text, size_t more)
{
    if (text->used + more + 1 <= text->room)
        return;
    text->room = 2 * (text->used + more + 1);
    text->bytes = realloc(text->bytes, text->room);
    if (text->bytes == NULL)
        abort();
}

static void text_print(Text *text, const char *format, va_list list)
{
    va_list again;
    va_copy(again, list);
    int length = vsnprintf(NULL, 0, format, list);
    text_room(text, (size_t)length);
    vsnprintf(text->bytes + text->used, (size_t)length + 1, format, again);
    va_end(again);
    text->used += (size_t)length;
}

void text_add(Text *text, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    text_print(text, format, list);
    va_end(list);
}

void text_add_string(Text *text, const char *value)
{
    text_add(text, "\"");
    for (; *value; value++) {
        unsigned char each = (unsigned char)*value;
        if (each == '"' || each == '\\')
            text_add(text, "\\%c", each);
        else if (each < 0x20)
            text_add(text, "\\u%04x", each);
        else
            text_add(text, "%c", each);
    }
    text_add(text, "\"");
}

void text_add_numbers(Text *text, const int *numbers, int count)
{
    text_add(text, "[");
    for (int i = 0; i < count; i++)
        text_add(text, i ? ",%d" : "%d", numbers[i]);
    text_add(text, "]");
}

static const char *skip_space(const char *at)
{
    while (isspace((unsigned char)*at))
        at++;
    return at;
}

static const char *skip_string(const char *at)
{
    for (at++; *at && *at != '"'; at++)
        if (*at == '\\' && at[1])
            at++;
    return *at ? at + 1 : at;
}

static const char *skip_value(const char *at)
{
    int depth = 0;
    do {
        if (*at == '"') {
            at = skip_string(at);
            continue;
        }
        if (*at == '[' || *at == '{')
            depth++;
        else if (*at == ']' || *at == '}')
            depth--;
        if (depth >= 0)
            at++;
    } while (*at && (depth > 0 || (depth == 0 && !strchr(",]}", *at))));
    return at;
}

/* The value of a key of the outermost object; NULL if there is none. */
static const char *json_value(const char *line, const char *key)
{
    const char *at = strchr(line, '{');
    size_t length = strlen(key);
    while (at != NULL && *at && *at != '}') {
        at = skip_space(at + 1);
        if (*at != '"')
            return NULL;
        const char *name = at + 1, *after = skip_string(at);
        at = skip_space(after);
        if (*at != ':')
            return NULL;
        at = skip_space(at + 1);
        if ((size_t)(after - 1 - name) == length && strncmp(name, key, length) == 0)
            return at;
        at = skip_space(skip_value(at));
    }
    return NULL;
}

long json_long(const char *line, const char *key, long otherwise)
{
    const char *at = json_value(line, key);
    if (at == NULL || strncmp(at, "null", 4) == 0)
        return otherwise;
    if (strncmp(at, "true", 4) == 0)
        return 1;
    return strtol(at, NULL, 10); /* false becomes 0 */
}

static char *decoded(const char *at)
{
    char *text = malloc(strlen(at) + 1), *end = text;
    for (at++; *at && *at != '"'; at++) {
        if (*at != '\\') {
            *end++ = *at;
            continue;
        }
        at++;
        if (*at == 'u') { /* the helper escapes only control characters so */
            char digits[5] = {0};
            strncpy(digits, at + 1, 4);
            *end++ = (char)strtol(digits, NULL, 16);
            at += strlen(digits);
        } else {
            const char *from = "nrtbf", *to = "\n\r\t\b\f", *found = strchr(from, *at);
            *end++ = found && *at ? to[found - from] : *at;
        }
    }
    *end = 0;
    return text;
}

char *json_string(const char *line, const char *key)
{
    const char *at = json_value(line, key);
    return at != NULL && *at == '"' ? decoded(at) : NULL;
}

/* The number of elements of an array; `each` is called with the place of every one. */
static int json_each(const char *line, const char *key, void (*each)(void *, int, const char *),
                     void *arg)
{
    const char *at = json_value(line, key);
    int count = 0;
    if (at == NULL || *at != '[')
        return 0;
    for (at = skip_space(at + 1); *at && *at != ']'; at = skip_space(*at == ',' ? at + 1 : at)) {
        each(arg, count++, at);
        at = skip_space(skip_value(at));
    }
    return count;
}

static void take_number(void *arg, int index, const char *at)
{
    int **numbers = arg;
    *numbers = realloc(*numbers, sizeof(int) * (size_t)(index + 1));
    (*numbers)[index] = (int)strtol(at, NULL, 10);
}

int json_longs(const char *line, const char *key, int **numbers)
{
    *numbers = NULL;
    return json_each(line, key, take_number, numbers);
}

static void take_string(void *arg, int index, const char *at)
{
    char ***strings = arg;
    *strings = realloc(*strings, sizeof(char *) * (size_t)(index + 1));
    (*strings)[index] = decoded(at);
}

int json_strings(const char *line, const char *key, char ***strings)
{
    *strings = NULL;
    return json_each(line, key, take_string, strings);
}

/* -- the helper --------------------------------------------------------------------------------- */

static const char *python(void)
{
    const char *named = getenv("QTIDE_PYTHON");
    return named && *named ? named : QTIDE_PYTHON;
}

/* Start the helper; returns its first line. `words` are its arguments. */
char *control_start(const char *const *words, const char *first_line)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC))
        return NULL;
    const Launched *launched = world_launcher();
    pid_t child = fork();
    if (child == 0) {
        dup2(in[0], 0);
        dup2(out[1], 1);
        setpgid(0, 0); /* an interrupt of the terminal is for the program, which then ends it */
        if (launched != NULL) {
            char number[16];
            snprintf(number, sizeof number, "%d", launched->fd);
            setenv("PMI_FD", number, 1);
            snprintf(number, sizeof number, "%d", launched->rank);
            setenv("PMI_RANK", number, 1);
            snprintf(number, sizeof number, "%d", launched->size);
            setenv("PMI_SIZE", number, 1);
        }
        const char *argv[8] = {python(), "-m", "qtide.mpi.helper"};
        for (int i = 0; words[i] != NULL && i < 4; i++)
            argv[3 + i] = words[i];
        execvp(argv[0], (char **)argv);
        fprintf(stderr, "qtide: cannot start %s: %s; set QTIDE_PYTHON to a Python that has qtide\n",
                argv[0], strerror(errno));
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    if (launched != NULL)
        close(launched->fd);
    if (child < 0)
        return NULL;
    control.helper = child;
    control.helper_input = in[1];
    signal(SIGPIPE, SIG_IGN);
    dprintf(in[1], "%s\n", first_line);
    char *line = NULL;
    size_t room = 0;
    FILE *answer = fdopen(out[0], "r");
    if (getline(&line, &room, answer) <= 0) {
        free(line);
        line = NULL;
    }
    fclose(answer);
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
    pthread_mutex_lock(&control.lock);
    if (json_value(text, "lost") != NULL) {
        control.lost = realloc(control.lost, sizeof(int) * (size_t)(control.lost_count + 1));
        control.lost[control.lost_count] = (int)json_long(text, "lost", 0);
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
    close(control.helper_input);
    control.helper = 0;
}
