/* What is registered as the state of the job, and what is saved of it. */
#define _GNU_SOURCE
#include "internal.h"

#include <ctype.h>
#include <limits.h>
#include <unistd.h>

char *registered(void)
{
    Text text = {0};
    text_add(&text, "libqtide 1\n");
    for (int i = 0; i < job.state_count; i++)
        text_add(&text, "state %s %zu\n", job.states[i].name, job.states[i].bytes);
    for (int i = 0; i < array_count; i++) {
        const qtide_array *array = &arrays[i]->array;
        text_add(&text, "array %s %lld %zu %lld\n", arrays[i]->name, (long long)array->rows,
                 array->row_bytes, (long long)array->block);
    }
    return text.bytes;
}

static bool valid(const char *name)
{
    size_t length = name != NULL ? strlen(name) : 0;
    for (const char *each = name; length && *each; each++)
        if (!isalnum((unsigned char)*each) && !strchr("_.-", *each))
            return false;
    return length > 0 && length < 64 && *name != '.';
}

/* Whether data can be registered under a name that others of its kind have or not; says why if it cannot. */
static bool registrable(const char *name, bool taken)
{
    const char *why = !job.active      ? "data is registered after qtide_init()"
                      : job.begun      ? "data is registered before qtide_begin(), so that newcomers have it, too"
                      : !valid(name)   ? "data needs a name of letters and digits, up to 63"
                      : taken          ? "two states, or two arrays, have the same name"
                                       : NULL;
    if (why != NULL)
        fail(QTIDE_ERROR, "%s: %s", name != NULL ? name : "NULL", why);
    return why == NULL;
}

static int state_file(const State *state, const char *folder, bool write_it)
{
    Text path = {0};
    text_add(&path, "%s/%s.state", folder, state->name);
    FILE *file = fopen(path.bytes, write_it ? "w" : "r");
    size_t done = 0;
    if (file != NULL)
        done = write_it ? fwrite(state->buffer, 1, state->bytes, file)
                        : fread(state->buffer, 1, state->bytes, file);
    if (file != NULL && write_it && (fflush(file) || fsync(fileno(file))))
        done = 0;
    if (file != NULL)
        fclose(file);
    int code = done == state->bytes ? 0
               : fail(QTIDE_ERROR, "cannot %s %s", write_it ? "write" : "read", path.bytes);
    free(path.bytes);
    return code;
}

static bool resumes(void) { return !job.newcomer && job.checkpoint != NULL && *job.checkpoint; }

int qtide_state(const char *name, void *buffer, size_t bytes)
{
    bool taken = false;
    for (int i = 0; i < job.state_count && name != NULL; i++)
        taken = taken || strcmp(job.states[i].name, name) == 0;
    if (!registrable(name, taken))
        return QTIDE_ERROR;
    if (buffer == NULL)
        return fail(QTIDE_ERROR, "the state %s needs the address of its bytes", name);
    job.states = realloc(job.states, sizeof *job.states * (size_t)(job.state_count + 1));
    State *state = &job.states[job.state_count++];
    *state = (State){"", buffer, bytes};
    strcpy(state->name, name);
    if (!resumes())
        return 0;
    return state_file(state, job.checkpoint, false) ? QTIDE_ERROR : 1;
}

qtide_array *qtide_distributed(const char *name, int64_t rows, size_t row_bytes, int64_t block)
{
    bool taken = false;
    for (int i = 0; i < array_count && name != NULL; i++)
        taken = taken || strcmp(arrays[i]->name, name) == 0;
    if (!registrable(name, taken))
        return NULL;
    if (rows < 0 || rows > INT_MAX || row_bytes == 0 || row_bytes > INT_MAX || block < 0) {
        fail(QTIDE_ERROR, "the array %s needs up to 2^31 rows and bytes per row, and a block of 0 or more",
             name);
        return NULL;
    }
    Array *array = calloc(1, sizeof *array);
    strcpy(array->name, name);
    array->array.rows = rows;
    array->array.row_bytes = row_bytes;
    array->array.block = block;
    arrays = realloc(arrays, sizeof *arrays * (size_t)(array_count + 1));
    arrays[array_count++] = array;
    int rank = job.arriving ? 1 : job.rank, size = job.arriving ? 1 : job.size;
    size_t bytes = (size_t)layout_count(&array->array, rank, size) * row_bytes;
    array_place(array, calloc(bytes + 1, 1), rank, size);
    if (resumes())
        array->array.restored = array_read(array, job.checkpoint, rank, size) == 0;
    return &array->array;
}

int qtide_on_change(qtide_layout function, void *extra)
{
    if (function == NULL)
        return fail(QTIDE_ERROR, "qtide_on_change() needs a function");
    job.layouts = realloc(job.layouts, sizeof *job.layouts * (size_t)(job.layout_count + 1));
    job.layouts[job.layout_count++] = (Layout){function, extra};
    return 0;
}

static int write_manifest(const char *folder)
{
    Text path = {0}, new = {0};
    text_add(&path, "%s/manifest", folder);
    text_add(&new, "%s/manifest.new", folder);
    char *content = registered();
    FILE *file = fopen(new.bytes, "w");
    bool done = file != NULL && fputs(content, file) >= 0 && fflush(file) == 0 &&
                fsync(fileno(file)) == 0;
    if (file != NULL)
        fclose(file);
    done = done && rename(new.bytes, path.bytes) == 0;
    int code = done ? 0 : fail(QTIDE_ERROR, "cannot write %s", path.bytes);
    free(path.bytes);
    free(new.bytes);
    free(content);
    return code;
}

int qtide_save(void)
{
    char *path = NULL;
    int code = 0;
    if (!job.active || job.arriving || job.completing)
        return fail(QTIDE_ERROR, "qtide_save() comes after the head of the loop");
    if (is_root()) {
        char *answer = control_ask(ASK_LIMIT, "save", "%s", "");
        path = answer != NULL ? json_string(answer, "path") : NULL;
        free(answer);
    }
    char *folder = bcast_text(path, job.comm, &job.watch);
    free(path);
    if (folder == NULL)
        return QTIDE_LOST;
    if (*folder == 0) {
        free(folder);
        return fail(QTIDE_ERROR, "nothing is saved, as the helper of the job does not answer");
    }
    for (int i = 0; i < array_count && code == 0; i++)
        code = array_write(arrays[i], folder);
    int worst; /* all have written, or none has saved */
    if (MPI_Allreduce(&code, &worst, 1, MPI_INT, MPI_MIN, job.comm) != MPI_SUCCESS)
        return QTIDE_LOST;
    code = worst;
    for (int i = 0; is_root() && i < job.state_count && code == 0; i++)
        code = state_file(&job.states[i], folder, true);
    if (is_root() && code == 0)
        code = write_manifest(folder);
    if (bcast(&code, sizeof code, job.comm, &job.watch))
        return QTIDE_LOST;
    if (code)
        return code;
    if (is_root()) {
        Text text = {0};
        text_add_string(&text, folder);
        free(control_ask(ASK_LIMIT, "saved", "\"path\": %s", text.bytes));
        free(text.bytes);
    }
    free(job.checkpoint);
    job.checkpoint = folder;
    return 0;
}

int qtide_recover(void)
{
    int size = job.size, *before = malloc(sizeof(int) * (size_t)size), code;
    memcpy(before, job.members, sizeof(int) * (size_t)size);
    while ((code = regroup()) == 1)
        continue; /* it ends, as the root is never lost */
    if (code)
        return code;
    if (is_root()) {
        int *gone = malloc(sizeof(int) * (size_t)size), count = 0;
        for (int i = 0; i < size; i++) {
            bool left = false;
            for (int j = 0; j < job.size; j++)
                left = left || job.members[j] == before[i];
            if (!left)
                gone[count++] = before[i];
        }
        Text text = {0};
        text_add_numbers(&text, gone, count);
        free(control_ask(ASK_LIMIT, "lost", "\"members\": %s", text.bytes));
        free(text.bytes);
        free(gone);
    }
    free(before);
    char *folder = bcast_text(job.checkpoint, job.comm, &job.watch);
    if (folder == NULL)
        return QTIDE_LOST;
    free(job.checkpoint);
    job.checkpoint = folder;
    if (*folder == 0)
        return fail(QTIDE_ERROR, "nodes of the job are gone, and nothing was saved; call "
                                 "qtide_save() before");
    for (int i = 0; i < job.state_count && code == 0; i++)
        code = state_file(&job.states[i], folder, false);
    for (int i = 0; i < array_count && code == 0; i++)
        code = array_read(arrays[i], folder, job.rank, job.size);
    return code ? code : job.size;
}

