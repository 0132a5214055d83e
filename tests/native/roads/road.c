/*
 * One program, many roads: its first argument says by which one it finds the driver's functions.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "walk.h"

static void *handle;
static void *(*looked_up_dlsym)(void *, const char *);
static int wanted_version;
static cuuint64_t wanted_flags;

static void *by_handle(const char *name)
{
    return dlsym(handle, name);
}

static void *by_default(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

static void *by_next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

static void *by_looked_up_dlsym(const char *name)
{
    return looked_up_dlsym(handle, name);
}

/* cuMemAlloc_v2 as cuGetProcAddress wants it: cuMemAlloc. */
static const char *base_of(const char *symbol)
{
    static char base[64];
    snprintf(base, sizeof base, "%s", symbol);
    char *suffix = strstr(base, "_v");
    if (suffix != NULL)
        *suffix = '\0';
    return base;
}

/* The version in which a base name meant the symbol that the program is written for. */
static int version_for(const char *symbol)
{
    return strcmp(symbol, "cuCtxCreate_v2") == 0 ? 11000 : wanted_version;
}

static void *by_proc_address(const char *name)
{
    void *found = NULL;
    __typeof__(&cuGetProcAddress) ask = dlsym(handle, "cuGetProcAddress");
    ask(base_of(name), &found, version_for(name), wanted_flags);
    return found;
}

/* The function that finds functions is itself found by itself, as libcudart does. */
static void *by_proc_address_v2(const char *name)
{
    void *found = NULL;
    CUdriverProcAddressQueryResult status;
    __typeof__(&cuGetProcAddress_v2) ask = dlsym(handle, "cuGetProcAddress_v2");
    ask("cuGetProcAddress", &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, &status);
    ask = found;
    found = NULL;
    ask(base_of(name), &found, version_for(name), wanted_flags, &status);
    return found;
}

/* A library's own walk, by the roads that a library can take. */
static int walk_in(void *library, const char *how)
{
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 3;
    }
    int (*walk_there)(void) = (int (*)(void))dlsym(library, how);
    return walk_there();
}

static int take(const char *road, const char *library)
{
    if (strcmp(road, "default") == 0)
        return walk(by_default);
    if (strcmp(road, "next") == 0)
        return walk(by_next);
    if (strcmp(road, "dlopen") == 0)
        return handle = dlopen(library, RTLD_NOW), walk(by_handle);
    if (strcmp(road, "dlopen-null") == 0)
        return handle = dlopen(NULL, RTLD_NOW), walk(by_handle);
    if (strcmp(road, "dlmopen") == 0)
        return handle = dlmopen(LM_ID_NEWLM, library, RTLD_NOW), walk(by_handle);
    if (strcmp(road, "dlvsym-2.2.5") == 0 || strcmp(road, "dlvsym-2.34") == 0) {
        handle = dlopen("libcuda.so.1", RTLD_NOW);
        looked_up_dlsym = (void *(*)(void *, const char *))dlvsym(
            RTLD_DEFAULT, "dlsym", strstr(road, "2.34") ? "GLIBC_2.34" : "GLIBC_2.2.5");
        return walk(by_looked_up_dlsym);
    }
    if (strcmp(road, "dlsym-dlsym") == 0) {
        handle = dlopen("libcuda.so.1", RTLD_NOW);
        void *libc = dlopen("libc.so.6", RTLD_NOW);
        looked_up_dlsym = (void *(*)(void *, const char *))dlsym(libc, "dlsym");
        return walk(by_looked_up_dlsym);
    }
    if (strncmp(road, "proc", 4) == 0) {
        handle = dlopen("libcuda.so.1", RTLD_NOW);
        wanted_version = atoi(library);
        wanted_flags = strstr(road, "per-thread") ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
                                                  : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
        return walk(strncmp(road, "proc2", 5) == 0 ? by_proc_address_v2 : by_proc_address);
    }
    if (strcmp(road, "deepbind-linked") == 0)
        return walk_in(dlopen(library, RTLD_NOW | RTLD_DEEPBIND), "walk_linked");
    if (strcmp(road, "deepbind-lazy") == 0)
        return walk_in(dlopen(library, RTLD_LAZY | RTLD_DEEPBIND), "walk_linked");
    if (strcmp(road, "deepbind-dlsym") == 0)
        return walk_in(dlopen(library, RTLD_NOW | RTLD_DEEPBIND), "walk_dlsym");
    if (strcmp(road, "library-next") == 0)
        return walk_in(dlopen(library, RTLD_NOW), "walk_next");
    if (strcmp(road, "namespace-linked") == 0)
        return walk_in(dlmopen(LM_ID_NEWLM, library, RTLD_NOW), "walk_linked");
    if (strcmp(road, "namespace-dlsym") == 0)
        return walk_in(dlmopen(LM_ID_NEWLM, library, RTLD_NOW), "walk_dlsym");
    fprintf(stderr, "no road %s\n", road);
    return 2;
}

int main(int count, char **arguments)
{
    const char *road = count > 1 ? arguments[1] : "";
    const char *library = count > 2 ? arguments[2] : NULL;
    if (strcmp(road, "fork") == 0) {
        handle = dlopen("libcuda.so.1", RTLD_NOW);
        const pid_t child = fork();
        if (child == 0)
            _exit(walk(by_handle));
        int status = 0;
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    }
    if (strcmp(road, "exec") == 0) {
        execl("/proc/self/exe", arguments[0], "dlopen", "libcuda.so.1", NULL);
        return 4;
    }
    return take(road, library);
}
