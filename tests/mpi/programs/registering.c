/* Registers what cannot be registered; one line for each, with the reason. */
#include <qtide.h>
#include <stdio.h>

#define SAID(refused) printf("%s\n", (refused) ? qtide_message() : "taken")

int main(void)
{
    int number = 0;
    SAID(qtide_state("early", &number, sizeof number) < 0);
    if (qtide_init(1, 1, 1))
        return 1;
    SAID(qtide_state("number", &number, sizeof number) < 0);
    SAID(qtide_state("number", &number, sizeof number) < 0);
    SAID(qtide_state("../number", &number, sizeof number) < 0);
    SAID(qtide_state(NULL, &number, sizeof number) < 0);
    SAID(qtide_state("nothing", NULL, sizeof number) < 0);
    SAID(qtide_distributed("rows", 10, 8, 0) == NULL);
    SAID(qtide_distributed("rows", 10, 8, 0) == NULL);
    SAID(qtide_distributed("more", -1, 8, 0) == NULL);
    SAID(qtide_on_change(NULL, NULL) < 0);
    qtide_begin();
    SAID(qtide_state("late", &number, sizeof number) < 0);
    return qtide_finalize() ? 1 : 0;
}
