/* In place of functions of UCX, which MPICH uses: processes survive it when they lose others.
 *
 * UCX and MPICH 5.0.2 have four faults, each of which ends the process. They need nothing of the rest of the
 * library: programs in Python load this file alone.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#pragma GCC visibility push(default)

#define UNREACHABLE ((void *)(intptr_t)-6)
#define ERRORS 100 /* the highest addresses are errors */

/* UCX's own function: the next one of this name, or that of the library that somebody has loaded. */
static void *real_one(const char *name, const char *library)
{
    void *found = dlsym(RTLD_NEXT, name);
    void *loaded = found == NULL ? dlopen(library, RTLD_LAZY | RTLD_NOLOAD) : NULL;
    return loaded == NULL ? found : dlsym(loaded, name);
}

#define UCX(name, result, parameters)                                                              \
    static result(*real) parameters;                                                               \
    if (real == NULL)                                                                              \
        real = (result(*) parameters)real_one(#name, "libucp.so.0")

static int is_error(const void *request) { return (uintptr_t)request >= (uintptr_t)-ERRORS; }

/* 1. UCX aborts if it reads a large message from a process of this computer that has died. It does so where it
 * logs that; otherwise the message ends with an error. */
enum { FATAL = 0, STOP = 0, CONTINUE = 1 };

static int logged(const char *file, unsigned line, const char *function, int level, const void *component,
                  const char *format, va_list list)
{
    (void)line, (void)function, (void)component, (void)format, (void)list;
    return level == FATAL && strstr(file, "cma_ep.c") != NULL ? STOP : CONTINUE;
}

static void keep_alive(void)
{
    static int done;
    if (done++)
        return;
    void (*push)(int (*)(const char *, unsigned, const char *, int, const void *, const char *, va_list)) =
        (void (*)(int (*)(const char *, unsigned, const char *, int, const void *, const char *, va_list)))
            real_one("ucs_log_push_handler", "libucs.so.0");
    if (push != NULL)
        push(logged);
}

/* 2. UCX cannot attach the memory of a process of this computer that has died since it sent its address. MPICH
 * takes no notice of that, and sends to an endpoint that does not exist, or to one that was there before. */
signed char ucp_ep_create(void *worker, const void *terms, void **made)
{
    UCX(ucp_ep_create, signed char, (void *, const void *, void **));
    keep_alive();
    signed char status = real(worker, terms, made);
    if (status != 0)
        *made = NULL;
    return status;
}

/* 3. MPICH uses the request of a send that has failed at once, which is none: over TCP, as soon as UCX has
 * noticed that the process is gone. What is sent to it then counts as sent. */
#define SENT(name)                                                                                 \
    void *name(void *to, const void *data, size_t count, uint64_t tag, const void *how)            \
    {                                                                                              \
        UCX(name, void *, (void *, const void *, size_t, uint64_t, const void *));                 \
        if (to == NULL)                                                                            \
            return UNREACHABLE;                                                                    \
        void *request = real(to, data, count, tag, how);                                           \
        return is_error(request) ? NULL : request;                                                 \
    }
SENT(ucp_tag_send_nbx)
SENT(ucp_tag_send_sync_nbx)

void *ucp_am_send_nbx(void *to, unsigned handler, const void *head, size_t length, const void *data,
                      size_t count, const void *how)
{
    UCX(ucp_am_send_nbx, void *,
        (void *, unsigned, const void *, size_t, const void *, size_t, const void *));
    return to == NULL ? UNREACHABLE : real(to, handler, head, length, data, count, how);
}

/* 4. MPICH releases a request that is an error, as of a newcomer that dies before MPI_Comm_accept() answers. */
void ucp_request_release(void *request)
{
    UCX(ucp_request_release, void, (void *));
    if (!is_error(request))
        real(request);
}
