/* A QPU of a vQPU service, which the helper of the root calls. */
#include "internal.h"

#define QPU_LIMIT 120.0 /* seconds within which the service has to answer */

static char *asked(const char *what, const char *task, const char *rest, double limit)
{
    Text text = {0};
    text_add(&text, "\"task\": ");
    text_add_string(&text, task);
    char *answer = control_ask(limit, what, "%s%s", text.bytes, rest);
    free(text.bytes);
    char *error = answer != NULL ? json_string(answer, "error") : NULL;
    if (answer == NULL || error != NULL) {
        fail(QTIDE_ERROR, "%s", error != NULL ? error : "the helper of the job does not answer");
        free(answer);
        answer = NULL;
    }
    free(error);
    return answer;
}

int qtide_qpu_submit(const char *device, const char *format, const char *text, int shots,
                     char task[QTIDE_TASK_ID])
{
    Text terms = {0};
    text_add(&terms, ", \"device\": ");
    text_add_string(&terms, device != NULL ? device : "");
    text_add(&terms, ", \"format\": ");
    text_add_string(&terms, format);
    text_add(&terms, ", \"data\": ");
    text_add_string(&terms, text);
    text_add(&terms, ", \"shots\": %d", shots);
    char *answer = asked("submit", "", terms.bytes, QPU_LIMIT);
    free(terms.bytes);
    if (answer == NULL)
        return QTIDE_ERROR;
    char *id = json_string(answer, "task");
    snprintf(task, QTIDE_TASK_ID, "%s", id != NULL ? id : "");
    free(id);
    free(answer);
    return 0;
}

int qtide_qpu_poll(const char *task)
{
    char *answer = asked("poll", task, "", QPU_LIMIT), *state;
    if (answer == NULL)
        return QTIDE_ERROR;
    state = json_string(answer, "state");
    int over = state != NULL && strcmp(state, "queued") && strcmp(state, "running");
    free(state);
    free(answer);
    return over;
}

int qtide_qpu_fetch(const char *task, double wait, char **text)
{
    char terms[64];
    snprintf(terms, sizeof terms, ", \"wait\": %.3f", wait);
    char *answer = asked("fetch", task, terms, QPU_LIMIT + wait);
    if (answer == NULL)
        return QTIDE_ERROR;
    *text = json_string(answer, "text");
    free(answer);
    return *text != NULL;
}

int qtide_qpu_cancel(const char *task)
{
    char *answer = asked("withdraw", task, "", QPU_LIMIT);
    int code = answer == NULL ? QTIDE_ERROR : 0;
    free(answer);
    return code;
}
