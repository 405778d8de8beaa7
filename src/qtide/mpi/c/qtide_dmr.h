/* The usual names of DMR, the library for malleable MPI programs, on libqtide.
 *
 * Where the meaning is the same, a DMR program is ported by including this file instead of dmr.h and
 * by registering its data: qtide_state and qtide_distributed take the place of the functions that
 * save, send and receive, so those are not called. Call qtide_begin() after everything is registered.
 */
#ifndef QTIDE_DMR_H
#define QTIDE_DMR_H

#include <stdlib.h>

#include "qtide.h"

#define DMR_WORLD_COMM qtide_comm()
#define DMR_INTERCOMM qtide_comm()
#define DMR_comm_rank qtide_rank()
#define DMR_comm_size qtide_size()

typedef enum { DMR_NO_ACTION, DMR_RECONF } DMRAction;
typedef enum { USE_POLICY, SHOULD_EXPAND, SHOULD_SHRINK, SHOULD_STAY } DMRSuggestion;

static inline int qtide_dmr_number(const char *name, int otherwise)
{
    return getenv(name) != NULL ? atoi(getenv(name)) : otherwise;
}

/* The numbers of nodes are those of DMR's environment variables; the default is 1 to 64. */
static inline DMRAction dmr_init(int argc, char **argv)
{
    int most = qtide_dmr_number("DMR_DEFAULT_POLICY_MAX", 64);
    (void)argc, (void)argv;
    if (qtide_init(qtide_dmr_number("DMR_DEFAULT_POLICY_MIN", 1),
                   qtide_dmr_number("DMR_DEFAULT_POLICY_PREF", most), most))
        exit(1); /* it has said why */
    return DMR_NO_ACTION;
}

static inline DMRAction dmr_finalize(void)
{
    qtide_finalize();
    return DMR_NO_ACTION;
}

/* Collective, at the head of a loop. A rank that has to go ends in it. */
#define dmr_check(suggestion) qtide_dmr_check(suggestion, __FILE__, __LINE__)
static inline DMRAction qtide_dmr_check(DMRSuggestion suggestion, const char *file, int line)
{
    int before = qtide_size();
    if (suggestion == SHOULD_EXPAND)
        qtide_expand_at(0, 0, 30.0, file, line);
    else if (suggestion == SHOULD_SHRINK)
        qtide_shrink_at(0, file, line);
    else if (suggestion == USE_POLICY)
        qtide_check_at(file, line);
    return qtide_size() != before ? DMR_RECONF : DMR_NO_ACTION;
}

/* `restart` runs after a change, on all ranks that were there before: the place to look again at ranks,
 * sizes and pointers. `redistribute` and `finalize` are not needed. */
#define DMR_AUTO(call, redistribute, restart, finalize)                                             \
    do {                                                                                            \
        if ((call) == DMR_RECONF) {                                                                 \
            restart;                                                                                \
        }                                                                                           \
    } while (0)

/* The names of the listing in the publication, and of DMR's first version. */
#define DMR_INIT(...) dmr_init(0, NULL)
#define DMR_EXPAND(...) qtide_expand(0, 0, 30.0)
#define DMR_MINIMIZE(...) qtide_minimise()
#define DMR_RECONFIGURATION(...) dmr_check(USE_POLICY)
#define DMR_FINALIZE(...) dmr_finalize()

#endif
