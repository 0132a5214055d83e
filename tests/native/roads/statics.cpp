/* A static object whose constructor uses CUDA. */
#define _Alignas alignas /* the declarations are written for C */
extern "C" {
#include "walk.h"
}
#include <dlfcn.h>

static void *by_handle(const char *name)
{
    static void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return dlsym(driver, name);
}

struct Early {
    Early()
    {
        walk(by_handle);
    }
};

static Early early;

int main()
{
    return 0;
}
