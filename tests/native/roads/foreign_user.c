#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **arguments)
{
    void *library = dlopen(arguments[count - 1], RTLD_NOW);
    int (*function)(void) = (int (*)(void))dlsym(library, "cuMemAlloc_v2");
    printf("cuMemAlloc_v2 of another library: %d\n", function());
    return 0;
}
