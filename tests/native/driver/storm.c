/* Random calls of several threads: whatever their order, the accounts balance in the end. */
#include "check.h"
#include "cuda_exec_abi.h"

#include <pthread.h>

enum { THREADS = 3, CALLS = 1500, HELD = 24 };

/* One thing that a thread holds, and how it is given back. */
struct holding {
    enum { NOTHING, PLAIN, POOLED, MANAGED, ARRAY, MAPPED, PINNED, EXPORTED } kind;
    CUdeviceptr address;
    size_t bytes;
    CUarray array;
    CUmemGenericAllocationHandle handle;
    unsigned seed;
};

struct worker {
    pthread_t thread;
    unsigned random;
    CUcontext context;
    CUstream stream;
    struct holding holdings[HELD];
};

static unsigned next(struct worker *worker)
{
    worker->random = worker->random * 1664525 + 1013904223;
    return worker->random >> 8;
}

/* Memory may run out, as others use the device too; nothing else may fail. */
static bool got(CUresult answer)
{
    CHECK(answer == CUDA_SUCCESS || answer == CUDA_ERROR_OUT_OF_MEMORY);
    return answer == CUDA_SUCCESS;
}

static size_t some_bytes(struct worker *worker)
{
    const size_t scales[] = {KIB, 64 * KIB, 3 * MIB, 100 * MIB};
    return 1 + next(worker) % scales[next(worker) % 4];
}

/* Writes the first and last bytes, which nobody else may touch. */
static void sign(struct worker *worker, struct holding *holding)
{
    holding->seed = next(worker);
    OK(cuMemcpyHtoDAsync_v2(holding->address, &holding->seed, 1, worker->stream));
    OK(cuMemcpyHtoDAsync_v2(holding->address + holding->bytes - 1, &holding->seed, 1,
                            worker->stream));
    OK(cuStreamSynchronize(worker->stream));
}

static void verify(const struct worker *worker, const struct holding *holding)
{
    unsigned char first = 0;
    unsigned char last = 0;
    OK(cuMemcpyDtoHAsync_v2(&first, holding->address, 1, worker->stream));
    OK(cuMemcpyDtoHAsync_v2(&last, holding->address + holding->bytes - 1, 1, worker->stream));
    OK(cuStreamSynchronize(worker->stream));
    CHECK_EQUAL(first, holding->seed & 0xff);
    CHECK_EQUAL(last, holding->seed & 0xff);
}

static bool map_some(struct worker *worker, struct holding *holding)
{
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    const CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    holding->bytes = (1 + next(worker) % 8) * BLOCK;
    if (!got(cuMemCreate(&holding->handle, holding->bytes, &properties, 0)))
        return false;
    OK(cuMemAddressReserve(&holding->address, holding->bytes, 0, 0, 0));
    OK(cuMemMap(holding->address, holding->bytes, 0, holding->handle, 0));
    OK(cuMemSetAccess(holding->address, holding->bytes, &access, 1));
    return true;
}

static bool take(struct worker *worker, struct holding *holding)
{
    void *pinned = NULL;
    CUipcMemHandle handle;
    holding->bytes = some_bytes(worker);
    switch (holding->kind) {
    case PLAIN:
        return got(cuMemAlloc_v2(&holding->address, holding->bytes));
    case POOLED:
        return got(cuMemAllocAsync(&holding->address, holding->bytes, worker->stream));
    case MANAGED:
        if (!got(cuMemAllocManaged(&holding->address, holding->bytes, CU_MEM_ATTACH_GLOBAL)))
            return false;
        OK(cuMemPrefetchAsync(holding->address, holding->bytes, 0, worker->stream));
        return true;
    case ARRAY:
        holding->bytes = 0;
        return got(cuArrayCreate_v2(
            &holding->array, &(CUDA_ARRAY_DESCRIPTOR){1 + next(worker) % 2000, next(worker) % 500,
                                                      CU_AD_FORMAT_FLOAT, 2}));
    case MAPPED:
        return map_some(worker, holding);
    case PINNED:
        if (!got(cuMemHostAlloc(&pinned, holding->bytes, 0)))
            return false;
        holding->address = (CUdeviceptr)(uintptr_t)pinned;
        return true;
    default:
        holding->bytes %= 4 * MIB;
        holding->bytes++;
        if (!got(cuMemAlloc_v2(&holding->address, holding->bytes)))
            return false;
        OK(cuIpcGetMemHandle(&handle, holding->address));
        return true;
    }
}

static void give(struct worker *worker, struct holding *holding)
{
    if (holding->bytes > 0)
        verify(worker, holding);
    switch (holding->kind) {
    case POOLED:
        OK(next(worker) % 2 ? cuMemFreeAsync(holding->address, worker->stream)
                            : cuMemFree_v2(holding->address));
        break;
    case ARRAY:
        OK(cuArrayDestroy(holding->array));
        break;
    case MAPPED:
        OK(cuMemUnmap(holding->address, holding->bytes));
        OK(cuMemAddressFree(holding->address, holding->bytes));
        OK(cuMemRelease(holding->handle));
        break;
    case PINNED:
        OK(cuMemFreeHost((void *)(uintptr_t)holding->address));
        break;
    default:
        OK(cuMemFree_v2(holding->address));
    }
    holding->kind = NOTHING;
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    OK(cuCtxSetCurrent(worker->context));
    OK(cuStreamCreate(&worker->stream, CU_STREAM_NON_BLOCKING));
    const bool forever = getenv("FOREVER") != NULL;
    for (int call = 0; call < CALLS || forever; call++) {
        struct holding *holding = &worker->holdings[next(worker) % HELD];
        if (holding->kind != NOTHING) {
            give(worker, holding);
            continue;
        }
        *holding = (struct holding){.kind = 1 + next(worker) % EXPORTED};
        /* Exporting writes to the file system: not so often. */
        if (holding->kind == EXPORTED && next(worker) % 8 != 0)
            holding->kind = PLAIN;
        if (!take(worker, holding))
            holding->kind = NOTHING;
        else if (holding->bytes > 0)
            sign(worker, holding);
    }
    for (int i = 0; i < HELD; i++) {
        if (worker->holdings[i].kind != NOTHING)
            give(worker, &worker->holdings[i]);
    }
    OK(cuStreamDestroy_v2(worker->stream));
    return NULL;
}

/* The environment's SEED chooses the calls; with CROWDED others use the node, too, and
 * with FOREVER it has to be killed. */
CASE(random_calls_balance)
{
    static struct worker workers[THREADS];
    const char *seed = getenv("SEED");
    const CUcontext context = fresh_context();
    const size_t before = free_bytes();
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].context = context;
        workers[i].random = (seed != NULL ? (unsigned)atoi(seed) : 0) * THREADS + i;
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(workers[i].thread, NULL) == 0);
    OK(cuCtxSynchronize());
    if (getenv("CROWDED") == NULL)
        CHECK_EQUAL(free_bytes(), before);
}
