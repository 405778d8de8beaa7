/* What the files of libqtide share. */
#ifndef QTIDE_INTERNAL_H
#define QTIDE_INTERNAL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "qtide.h"

/* json.c: messages as lines of JSON */

typedef struct {
    char *bytes;
    size_t used, room;
} Text;
void text_add(Text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_print(Text *text, const char *format, va_list list);
void text_add_string(Text *text, const char *value);
void text_add_numbers(Text *text, const int *numbers, int count);

const char *json_value(const char *line, const char *key); /* NULL if there is none */
long json_long(const char *line, const char *key, long otherwise);
char *json_string(const char *line, const char *key); /* free() it; NULL if there is none */
int json_longs(const char *line, const char *key, int **numbers);
int json_strings(const char *line, const char *key, char ***strings);

/* control.c: the connection to the helper of the root */

/* Whose loss ends a wait, and the change whose verdict does; `last` is 0 or a time. */
typedef struct {
    const int *members;
    int count, change;
    double last;
} Watch;

char *control_start(const char *const *words, const char *first_line); /* the helper's first line */
int control_connect(const char *invitation, bool ready);
void control_ready(void);
void control_send(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Ask the helper; returns its answer (free() it), or NULL if it is gone or took too long. */
char *control_ask(double limit, const char *what, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
char *control_order(void); /* the next order of the root; free() it */
int control_verdict(int change); /* 1: the change is made */
bool control_is_lost(int member);
int control_watch(const Watch *watch); /* 0, or QTIDE_LOST */
void control_settle(void); /* wait until all ranks know of the losses that this one knows */
bool control_gone(void); /* whether the helper is gone */
int control_identity(void);
void control_leave(void);
void control_finish(void); /* the root ends the helper */

/* world.c: MPI as a world of one process, waits that can be given up */

typedef struct {
    int fd, rank, size;
} Launched;
double now(void);
int world_begin(void);
int world_end(void);
bool world_begun(void);
const Launched *world_launcher(void);
void world_progress(void);
int world_lost_code(void);
/* The communicator of this process alone, which is never freed. */
MPI_Comm world_alone(void);
/* Whether MPI makes no communicator any more, as two calls that join or split were given up. */
bool world_closed(void);
/* QTIDE_ERROR, with the sentence that the program has to be started again. */
int world_hangs(void);
/* MPI_SUCCESS, or the code of a loss when all other ranks know of it, too. */
int world_alive(const Watch *watch);
/* Test a request until it is done; an MPI error code. */
int world_wait(MPI_Request *request, MPI_Status *status, const Watch *watch);
int world_until(int (*test)(void *, int *), void *arg, const Watch *watch);
/* Run a blocking function in a thread and watch. `arg` is on the heap: an abandoned call keeps it. */
int world_call(int (*function)(void *), void *arg, const Watch *watch);

/* join.c: joining and splitting communicators */

char **join_open(int count);
void join_close(char **ports, int count, bool connected);
int join_accept(char **ports, int count, MPI_Comm *pairs, const Watch *watch);
int join_extend(MPI_Comm comm, const MPI_Comm *pairs, int count, MPI_Comm *result, const Watch *);
int join_connect(const char *port, int later, MPI_Comm *result, const Watch *watch);
int join_split(MPI_Comm comm, const int *ranks, int count, int tag, MPI_Comm *result, const Watch *);

/* landing.c: where collective calls of the program let MPI write */

typedef struct Memory Memory;
typedef struct {
    char *user;
    Memory *own;
    MPI_Aint low, high; /* where the data lies, relative to the buffer's address */
    MPI_Aint data;      /* bytes of data in between: fewer if there are gaps */
} Landing;
void landing_block(Landing *landing, MPI_Aint at, MPI_Aint count, MPI_Datatype type);
void landing_blocks(Landing *, int ranks, const int counts[], const int places[], MPI_Datatype type);
void *landing_address(Landing *landing, void *to, bool filled);
int landing_wait(Landing *landing, int code, MPI_Request *request, const Watch *watch);

/* array.c: distributed arrays */

typedef struct {
    char name[64];
    qtide_array array;
    int rank, size; /* of the layout that `local` has now */
    void *moved;    /* this rank's rows in the layout of a change that is not made yet */
    int64_t moved_count;
    bool lent; /* MPI may still use `local`: it is never freed */
} Array;
extern Array **arrays;
extern int array_count;
void array_place(Array *array, void *local, int rank, int size);
int64_t layout_count(const qtide_array *array, int rank, int size);
int array_move(Array *array, MPI_Comm comm, int old_size, int new_size, const Watch *watch);
void array_settle(Array *array, bool made, int rank, int size);
int array_write(const Array *array, const char *folder);
int array_read(Array *array, const char *folder, int rank, int size);
int64_t arrays_bytes(void);

/* job.c: the job of this process, its beginning and end, and what its root decides */

#define ASK_LIMIT 180.0 /* seconds within which the helper has to answer */

typedef struct {
    char name[64];
    void *buffer;
    size_t bytes;
} State;

typedef struct {
    qtide_layout function;
    void *extra;
} Layout;

typedef struct {
    bool active, newcomer;
    bool begun;      /* everything is registered */
    bool arriving;   /* a newcomer has not joined yet */
    bool completing; /* its next collective call completes the one that brought it in */
    char *awaited;   /* the line of that call */
    int least, preferred, most;
    int *members, size, rank, change;
    MPI_Comm comm;
    Watch watch;
    const Watch *changing; /* that of the change in which callbacks move data */
    State *states;
    int state_count;
    Layout *layouts;
    int layout_count;
    char *checkpoint;     /* the folder of the last one */
    double connect, move; /* seconds of the last change's parts */
} Job;
extern Job job;

int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool is_root(void);
const Watch *job_watch(void); /* NULL if no other rank can be lost */

/* members.c: the members of the job, and the data that moves between them */

int bcast(void *data, size_t bytes, MPI_Comm comm, const Watch *watch);
int barrier(MPI_Comm comm, const Watch *watch);
char *bcast_text(const char *text, MPI_Comm comm, const Watch *watch); /* free() it */
void adopt(MPI_Comm comm, const int *members, int size);
int grow(const int *newcomers, int count, const char *site); /* 1 if they have joined */
int arrive(void);
int shrink(int size); /* 1 if only `size` members are left */
int regroup(void);    /* 0 if those who are left have a communicator, 1 to try again */

/* checkpoint.c: what is registered, and what is saved of it */

char *registered(void); /* one line each; free() it */

#endif
