/* Distributed arrays: which rank has which rows, how they move, and how they are saved. */
#define _GNU_SOURCE
#include "internal.h"

#include <fcntl.h>
#include <unistd.h>

#define PIECE (1L << 28) /* bytes that one rank sends to another at once: far below MPI's 2 GB */

Array **arrays;
int array_count;

/* -- layouts ------------------------------------------------------------------------------------ */

/* The first row of a rank that has one block; that of rank `size` is the number of rows. */
static int64_t block_start(const qtide_array *array, int rank, int size)
{
    int64_t least = array->rows / size, more = array->rows % size;
    if (rank >= size)
        return array->rows;
    return rank * least + (rank < more ? rank : more);
}

int64_t layout_count(const qtide_array *array, int rank, int size)
{
    if (rank >= size)
        return 0;
    if (array->block == 0)
        return block_start(array, rank + 1, size) - block_start(array, rank, size);
    int64_t turn = array->block * size, whole = array->rows / turn, rest = array->rows % turn;
    int64_t last = rest - rank * array->block;
    last = last < 0 ? 0 : last > array->block ? array->block : last;
    return whole * array->block + last;
}

/* The number in the whole array of a rank's row. */
static int64_t layout_row(const qtide_array *array, int rank, int size, int64_t index)
{
    if (array->block == 0)
        return block_start(array, rank, size) + index;
    return (index / array->block * size + rank) * array->block + index % array->block;
}

/* The rank that has a row. */
static int layout_owner(const qtide_array *array, int64_t row, int size)
{
    if (array->block)
        return (int)(row / array->block % size);
    int64_t least = array->rows / size, more = array->rows % size, wide = more * (least + 1);
    return (int)(row < wide ? row / (least + 1) : more + (row - wide) / least);
}

/* How many of a rank's rows lie at `index` and after it that are next to each other in the whole
 * array and have the same owner in the other layout. */
static int64_t layout_run(const qtide_array *array, int rank, int size, int64_t index, int other)
{
    int64_t row = layout_row(array, rank, size, index), count = layout_count(array, rank, size);
    int64_t here = count - index, there;
    if (array->block) {
        int64_t left = array->block - row % array->block;
        here = here < left ? here : left;
        there = left;
    } else {
        there = block_start(array, layout_owner(array, row, other) + 1, other) - row;
    }
    return here < there ? here : there;
}

int64_t qtide_row(const qtide_array *array, int64_t index)
{
    const Array *whole = (const Array *)((const char *)array - offsetof(Array, array));
    return layout_row(array, whole->rank, whole->size, index);
}

void array_place(Array *array, void *local, int rank, int size)
{
    if (!array->lent)
        free(array->array.local);
    array->lent = false;
    array->array.local = local;
    array->rank = rank;
    array->size = size;
    array->array.count = layout_count(&array->array, rank, size);
    array->array.first = array->array.count ? layout_row(&array->array, rank, size, 0)
                                            : array->array.rows;
}

int64_t arrays_bytes(void)
{
    int64_t sum = 0;
    for (int i = 0; i < array_count; i++)
        sum += arrays[i]->array.rows * (int64_t)arrays[i]->array.row_bytes;
    return sum;
}

/* -- moving ------------------------------------------------------------------------------------- */

/* What a rank of a `here`-rank layout exchanges with each rank of a `there`-rank one. */
static void shares(const qtide_array *array, int rank, int here, int there, int64_t *counts)
{
    int64_t count = layout_count(array, rank, here);
    for (int64_t i = 0; i < count;) {
        int64_t run = layout_run(array, rank, here, i, there);
        counts[layout_owner(array, layout_row(array, rank, here, i), there)] += run;
        i += run;
    }
}

/* Copy rows between their order in `local` and the order of the ranks that they are exchanged with. */
static void reorder(const qtide_array *array, int rank, int here, int there, const int64_t *starts,
                    int ranks, char *local, char *grouped, bool out)
{
    int64_t *next = malloc(sizeof *next * (size_t)ranks);
    int64_t count = layout_count(array, rank, here), width = (int64_t)array->row_bytes;
    memcpy(next, starts, sizeof *next * (size_t)ranks);
    for (int64_t i = 0; i < count;) {
        int64_t run = layout_run(array, rank, here, i, there);
        int owner = layout_owner(array, layout_row(array, rank, here, i), there);
        char *one = local + i * width, *other = grouped + next[owner] * width;
        memcpy(out ? other : one, out ? one : other, (size_t)(run * width));
        next[owner] += run;
        i += run;
    }
    free(next);
}

static void sums(const int64_t *counts, int64_t *starts, int ranks)
{
    int64_t sum = 0;
    for (int i = 0; i < ranks; i++) {
        starts[i] = sum;
        sum += counts[i];
    }
}

/* What one collective moves: counts and places, in rows, from the `done`th row on. */
static void piece_of(const int64_t *counts, const int64_t *starts, int ranks, int rank, int64_t done,
                     int64_t piece, int *now, int *places)
{
    for (int i = 0; i < ranks; i++) {
        int64_t left = i == rank ? 0 : counts[i] - done;
        now[i] = (int)(left < 0 ? 0 : left > piece ? piece : left);
        places[i] = (int)(starts[i] + (done < counts[i] ? done : counts[i]));
    }
}

/* Exchange rows that are grouped by rank, in pieces; a rank's own rows are copied. */
static int exchange(MPI_Comm comm, int64_t most, int64_t width, const char *from, const int64_t *out,
                    const int64_t *out_starts, char *to, const int64_t *in,
                    const int64_t *in_starts, const Watch *watch)
{
    int rank, ranks, code = MPI_SUCCESS;
    MPI_Datatype row;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &ranks);
    memcpy(to + in_starts[rank] * width, from + out_starts[rank] * width,
           (size_t)(out[rank] * width));
    PMPI_Type_contiguous((int)width, MPI_BYTE, &row);
    PMPI_Type_commit(&row);
    int64_t piece = width > PIECE ? 1 : PIECE / width;
    int *terms = malloc(sizeof *terms * 4 * (size_t)ranks);
    int *now_out = terms, *places_out = terms + ranks, *now_in = terms + 2 * ranks,
        *places_in = terms + 3 * ranks;
    for (int64_t done = 0; done < most && code == MPI_SUCCESS; done += piece) {
        MPI_Request request;
        piece_of(out, out_starts, ranks, rank, done, piece, now_out, places_out);
        piece_of(in, in_starts, ranks, rank, done, piece, now_in, places_in);
        code = PMPI_Ialltoallv(from, now_out, places_out, row, to, now_in, places_in, row, comm,
                               &request);
        if (code == MPI_SUCCESS)
            code = world_wait(&request, MPI_STATUS_IGNORE, watch);
    }
    if (code == MPI_SUCCESS) /* else MPI may still use them */
        free(terms);
    PMPI_Type_free(&row);
    return code;
}

/* Bring this rank's rows for `new_size` ranks to `moved`; the array stays as it is. */
int array_move(Array *whole, MPI_Comm comm, int old_size, int new_size, const Watch *watch)
{
    const qtide_array *array = &whole->array;
    int rank, ranks;
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &ranks);
    int64_t *parts = calloc(4 * (size_t)ranks, sizeof *parts);
    int64_t *out = parts, *in = parts + ranks, *out_starts = in + ranks, *in_starts = out_starts + ranks;
    int64_t width = (int64_t)array->row_bytes, new_count = layout_count(array, rank, new_size);
    int64_t old_count = layout_count(array, rank, old_size);
    shares(array, rank, old_size, new_size, out);
    shares(array, rank, new_size, old_size, in);
    sums(out, out_starts, ranks);
    sums(in, in_starts, ranks);
    char *from = array->local, *to = malloc((size_t)(new_count * width) + 1), *grouped = NULL;
    char *received = to;
    if (array->block) {
        grouped = malloc((size_t)(old_count * width) + 1);
        received = malloc((size_t)(new_count * width) + 1);
        reorder(array, rank, old_size, new_size, out_starts, ranks, from, grouped, true);
        from = grouped;
    }
    /* no rank has more rows than rank 0, so no two ranks exchange more than this */
    int64_t most = layout_count(array, 0, old_size), other = layout_count(array, 0, new_size);
    most = most < other ? most : other;
    int code = exchange(comm, most, width, from, out, out_starts, received, in, in_starts, watch);
    if (array->block) {
        reorder(array, rank, new_size, old_size, in_starts, ranks, to, received, false);
        if (code == MPI_SUCCESS) {
            free(grouped);
            free(received);
        }
    }
    free(parts);
    whole->moved = to;
    whole->moved_count = new_count;
    return code == MPI_SUCCESS ? 0 : QTIDE_LOST;
}

/* Take the moved rows if the change was made; forget them if not. */
void array_settle(Array *array, bool made, int rank, int size)
{
    if (made)
        array_place(array, array->moved, rank, size);
    else
        array->lent = true; /* a transfer that was given up may read `local` and write `moved` later */
    array->moved = NULL;
}

/* -- files -------------------------------------------------------------------------------------- */

static int opened(const Array *array, const char *folder, int flags)
{
    Text path = {0};
    text_add(&path, "%s/%s.rows", folder, array->name);
    int fd = open(path.bytes, flags | O_CLOEXEC, 0600);
    if (fd < 0)
        fail(QTIDE_ERROR, "cannot open %s", path.bytes);
    free(path.bytes);
    return fd;
}

typedef ssize_t (*Transfer)(int, void *, size_t, off_t);

static ssize_t put(int fd, void *data, size_t bytes, off_t at) { return pwrite(fd, data, bytes, at); }
static ssize_t get(int fd, void *data, size_t bytes, off_t at) { return pread(fd, data, bytes, at); }

/* Transfer a rank's rows between memory and their places in the file of the whole array. */
static int transferred(int fd, const qtide_array *array, char *local, int rank, int size, Transfer way)
{
    int64_t count = layout_count(array, rank, size), width = (int64_t)array->row_bytes;
    for (int64_t i = 0; i < count;) {
        int64_t run = layout_run(array, rank, size, i, 1), bytes = run * width;
        int64_t at = layout_row(array, rank, size, i) * width;
        for (int64_t done = 0; done < bytes;) {
            ssize_t each = way(fd, local + i * width + done, (size_t)(bytes - done), at + done);
            if (each <= 0)
                return fail(QTIDE_ERROR, "cannot transfer the rows of a checkpoint");
            done += each;
        }
        i += run;
    }
    return 0;
}

int array_write(const Array *array, const char *folder)
{
    int fd = opened(array, folder, O_WRONLY | O_CREAT);
    if (fd < 0)
        return QTIDE_ERROR;
    int code = transferred(fd, &array->array, array->array.local, array->rank, array->size, put);
    if (code == 0 && fsync(fd))
        code = fail(QTIDE_ERROR, "cannot write the rows of a checkpoint");
    close(fd);
    return code;
}

int array_read(Array *array, const char *folder, int rank, int size)
{
    int fd = opened(array, folder, O_RDONLY);
    if (fd < 0)
        return QTIDE_ERROR;
    int64_t bytes = layout_count(&array->array, rank, size) * (int64_t)array->array.row_bytes;
    char *local = calloc((size_t)bytes + 1, 1);
    int code = transferred(fd, &array->array, local, rank, size, get);
    close(fd);
    if (code)
        free(local);
    else
        array_place(array, local, rank, size);
    return code;
}
