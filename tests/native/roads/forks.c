/* A parent with memory forks before and after; each child's account is its own. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda_abi.h"

static size_t used_beside(size_t others)
{
    size_t free;
    size_t total;
    cuMemGetInfo_v2(&free, &total);
    return total - free - others;
}

int main(void)
{
    CUcontext context;
    CUdeviceptr address;
    cuInit(0);
    cuCtxCreate_v2(&context, 0, 0);
    const size_t context_bytes = used_beside(0);
    cuMemAlloc_v2(&address, 64 << 20);
    const size_t parent = used_beside(0);
    const pid_t child = fork();
    if (child == 0) {
        CUcontext own;
        CUdeviceptr small;
        cuInit(0);
        cuCtxCreate_v2(&own, 0, 0);
        const size_t first = used_beside(parent + context_bytes);
        cuMemAlloc_v2(&small, 8 << 20);
        /* The parent's: in the child nobody knows it, and nothing may be given back for it. */
        if (cuMemFree_v2(address) == CUDA_SUCCESS && address != small)
            return 1;
        cuMemFree_v2(small);
        printf("child: %zu bytes at first, again %zu at last\n", first,
               used_beside(parent + context_bytes));
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    printf("parent: %s\n", used_beside(parent) == 0 ? "as before" : "changed");
    return status;
}
