/* libqtide: MPI programs in C, C++ and Fortran that grow and shrink while they run.
 *
 * There is one rank per node; rank 0, the root, always stays. Collective functions are called by
 * all ranks. A newcomer starts the same program from its first line, and its first call of
 * qtide_expand, qtide_shrink, qtide_minimise or qtide_check returns together with the call that
 * brought it in: let that call be at the head of the loop. Members that leave end in that call by
 * exit(0), with all their atexit functions.
 *
 * Blocking MPI calls on qtide_comm() and on communicators made from it do not hang when a rank is
 * lost: they return an error for which qtide_is_lost() is true. Call qtide_recover() then.
 */
#ifndef QTIDE_H
#define QTIDE_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* What functions return instead of a size or zero; qtide_message() has the sentence. */
#define QTIDE_LOST (-1)  /* ranks of the job are gone */
#define QTIDE_ERROR (-2) /* anything else */

/* Begin the job; begins MPI too, unless the program has. Collective; returns 0. */
int qtide_init(int least, int preferred, int most);
/* End the job and MPI. Collective; returns 0. */
int qtide_finalize(void);

/* Call it after everything is registered, before the loop: a newcomer joins here, and gets the state
 * and its rows. Returns 0. */
int qtide_begin(void);

MPI_Comm qtide_comm(void); /* the present communicator */
int qtide_comm_f(void);    /* its handle in Fortran */
int qtide_rank(void);
int qtide_size(void);
int qtide_newcomer(void); /* whether this process was started by a growth */
const char *qtide_message(void);
int qtide_is_lost(int mpi_error);

/* Replicated state: `bytes` at `buffer`, the same on all ranks; newcomers get the root's. Returns 1
 * if the buffer has what an interrupted run saved last, 0 if not. */
int qtide_state(const char *name, void *buffer, size_t bytes);

/* An array whose rows are spread over the ranks: one block of rows for each rank, or, if `block` is
 * not 0, blocks of so many rows in turns. */
typedef struct qtide_array {
    void *local;   /* this rank's rows; replaced by every change of size */
    int64_t count; /* how many they are */
    int64_t first; /* the number of the first one */
    int64_t rows, block;
    size_t row_bytes;
    int restored; /* whether an interrupted run's rows were read */
} qtide_array;

/* Create the array, filled with zero bytes; a newcomer has no rows before qtide_begin(). Returns NULL
 * if that fails. */
qtide_array *qtide_distributed(const char *name, int64_t rows, size_t row_bytes, int64_t block);
/* The number in the whole array of this rank's row `index`. */
int64_t qtide_row(const qtide_array *array, int64_t index);

/* Data with a layout of its own. All ranks of `comm`, those that leave and those that have just
 * come, call it with QTIDE_MOVE: move the data, but keep what was there. Then each calls it with
 * QTIDE_KEEP if the change was made, or with QTIDE_DROP if not. Return 0, or anything else to give
 * the change up. */
enum { QTIDE_MOVE, QTIDE_KEEP, QTIDE_DROP };
typedef int (*qtide_layout)(int what, MPI_Comm comm, int old_size, int new_size, void *extra);
int qtide_on_change(qtide_layout function, void *extra);

/* Collective changes of size; each returns the new size. */
#define qtide_expand(to, least, wait) qtide_expand_at(to, least, wait, __FILE__, __LINE__)
#define qtide_shrink(to) qtide_shrink_at(to, __FILE__, __LINE__)
#define qtide_minimise() qtide_shrink_at(0, __FILE__, __LINE__)
/* Let the policy decide, and let newcomers that wait join; returns 1 if the size has changed. */
#define qtide_check() qtide_check_at(__FILE__, __LINE__)
/* Grow to `to` ranks (0: the preferred number), if that makes at least `least` (0: any more than
 * now); wait for nodes for up to `wait` seconds. What comes later joins in a later call. */
int qtide_expand_at(int to, int least, double wait, const char *file, int line);
int qtide_shrink_at(int to, const char *file, int line);
int qtide_check_at(const char *file, int line);
int qtide_cancel(void); /* give up a pending growth */

/* What qtide_check() asks: "phase", "queue", "efficiency" or "quantum-end". */
int qtide_policy(const char *name);
/* Say that a phase begins, "classical" or "quantum", and how long it lasts, if that is known. */
int qtide_phase(const char *name, double seconds);

/* Save the state and all arrays, for qtide_recover() and for a restart of the program. */
int qtide_save(void);
/* Go on with the ranks that are left, from what was saved last. Returns the new size. */
int qtide_recover(void);

/* A QPU of a vQPU service, from any rank. Formats: "qasm" (OpenQASM 3), "qubo" and "ising" (lines
 * of two variables and a weight; twice the same variable is its own weight), "burst" (seconds).
 * `device` NULL means $QTIDE_DEVICE, or the first that takes the format. */
#define QTIDE_TASK_ID 80
int qtide_qpu_submit(const char *device, const char *format, const char *text, int shots,
                     char task[QTIDE_TASK_ID]);
/* Returns 1 if the task has ended in whatever way, 0 if not. */
int qtide_qpu_poll(const char *task);
/* Wait for up to `wait` seconds; returns 1 with the answer in *text (free() it), 0 if there is none
 * yet. Its lines: energy, how often, values; or bits, how often. */
int qtide_qpu_fetch(const char *task, double wait, char **text);
int qtide_qpu_cancel(const char *task);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
