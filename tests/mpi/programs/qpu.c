/* A task that is polled and cancelled, one that is answered, and two mistakes. */
#include <qtide.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    char task[QTIDE_TASK_ID], *text = NULL;
    if (qtide_init(1, 1, 1))
        return 1;
    qtide_qpu_submit("dev", "burst", "2", 0, task); /* the next one waits for it */
    int submitted = qtide_qpu_submit("dev", "burst", "60", 0, task), polled = qtide_qpu_poll(task);
    int early = qtide_qpu_fetch(task, 0.1, &text), cancelled = qtide_qpu_cancel(task);
    int code = qtide_qpu_fetch(task, 10, &text);
    printf("%d %d %d %d %d %d\n", submitted, polled, early, cancelled, qtide_qpu_poll(task), code);
    qtide_qpu_submit("dev", "ising", "0 1 -1\n1 1 0.5\n", 0, task);
    code = qtide_qpu_fetch(task, 60, &text);
    printf("%d %d\n", code, atof(text) == -1.5);
    free(text);
    code = qtide_qpu_submit("dev", "odd", "", 0, task);
    printf("%d %s\n", code, qtide_message());
    code = qtide_qpu_submit("dev", "qubo", "0 1\n", 0, task);
    printf("%d %s\n", code, qtide_message());
    return qtide_finalize() ? 1 : 0;
}
