/* Uses the dynamic linker as programs do, and finds everything where it was. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    unsigned found = 0;
    void *self = dlopen(NULL, RTLD_NOW);
    static const char *const names[] = {"strlen", "malloc", "printf", "getpid"};
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        found += dlsym(RTLD_DEFAULT, names[i]) != NULL;
        found += dlsym(self, names[i]) != NULL;
    }
    found += dlsym(self, "cuMemAlloc_v2") == NULL;
    found += dlerror() != NULL;
    found += dlopen("libcuda.so.1", RTLD_NOW) == NULL;
    found += strstr(dlerror(), "libcuda.so.1") != NULL;
    printf("still here, %u found\n", found);
    return 0;
}
