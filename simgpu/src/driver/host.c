/* Host memory that devices reach; it is no device memory and is never charged. */
#include "host.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory.h"
#include "stream.h"

/* Sorted by address. Programs pin few and large ranges, so inserting may cost a move. */
static struct {
    pthread_rwlock_t lock;
    struct host_range *ranges;
    size_t count;
    size_t room;
} pinned = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* The first range that ends behind the address; `count` when there is none. */
static size_t place_of(uint64_t address)
{
    size_t low = 0;
    size_t high = pinned.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (pinned.ranges[middle].start + pinned.ranges[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct host_range *find(uint64_t address)
{
    const size_t place = place_of(address);
    return place < pinned.count && pinned.ranges[place].start <= address ? &pinned.ranges[place]
                                                                         : NULL;
}

static CUresult insert(const struct host_range *range)
{
    const size_t place = place_of(range->start);
    if (place < pinned.count && pinned.ranges[place].start < range->start + range->bytes)
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (pinned.count == pinned.room) {
        const size_t room = pinned.room > 0 ? pinned.room * 2 : 64;
        struct host_range *larger = realloc(pinned.ranges, room * sizeof *larger);
        if (larger == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        pinned.ranges = larger;
        pinned.room = room;
    }
    memmove(&pinned.ranges[place + 1], &pinned.ranges[place],
            (pinned.count - place) * sizeof *range);
    pinned.ranges[place] = *range;
    pinned.count++;
    return CUDA_SUCCESS;
}

static void erase(struct host_range *range)
{
    const size_t place = (size_t)(range - pinned.ranges);
    pinned.count--;
    memmove(range, range + 1, (pinned.count - place) * sizeof *range);
}

static CUresult add(struct context *context, uint64_t start, size_t bytes, unsigned flags,
                    bool is_registered)
{
    memory_lock();
    const uint64_t id = memory_next_id();
    memory_unlock();
    const struct host_range range = {
        .start = start,
        .bytes = bytes,
        .flags = flags,
        .is_registered = is_registered,
        .context = context,
        .buffer_id = id,
    };
    pthread_rwlock_wrlock(&pinned.lock);
    const CUresult result = insert(&range);
    pthread_rwlock_unlock(&pinned.lock);
    return result;
}

bool host_look(uint64_t address, struct host_range *range)
{
    pthread_rwlock_rdlock(&pinned.lock);
    const struct host_range *found = find(address);
    if (found != NULL)
        *range = *found;
    pthread_rwlock_unlock(&pinned.lock);
    return found != NULL;
}

bool host_holds(uint64_t address, uint64_t bytes)
{
    struct host_range range;
    return host_look(address, &range) && bytes <= range.bytes - (address - range.start);
}

void host_close(const struct context *context)
{
    pthread_rwlock_wrlock(&pinned.lock);
    for (size_t place = pinned.count; place-- > 0;) {
        struct host_range *range = &pinned.ranges[place];
        if (range->context != context)
            continue;
        if (!range->is_registered)
            munmap((void *)(uintptr_t)range->start, range->bytes);
        erase(range);
    }
    pthread_rwlock_unlock(&pinned.lock);
}

void host_forget(void)
{
    pinned.count = 0;
    pinned.lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
}

/* --- allocating ---------------------------------------------------------------------------- */

static size_t whole_pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) & ~(page - 1);
}

ENTRY cuMemHostAlloc(void **pointer, size_t bytes, unsigned flags)
{
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    ENTER(context);
    REQUIRE(pointer != NULL && bytes > 0 && bytes <= SIZE_MAX / 2 && (flags & ~known) == 0);
    TRY(capture_refuse_unsafe());
    void *memory =
        mmap(NULL, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = add(context, (uint64_t)(uintptr_t)memory, bytes, flags, false);
    if (result != CUDA_SUCCESS)
        munmap(memory, whole_pages(bytes));
    else
        *pointer = memory;
    return result;
}

ENTRY cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    return cuMemHostAlloc(pointer, bytes, 0);
}

ENTRY cuMemAllocHost(void **pointer, unsigned bytes)
{
    return cuMemHostAlloc(pointer, bytes, 0);
}

/* Takes the range that starts at a pointer out of the list, if it is of the wanted kind. */
static bool take_out(const void *pointer, bool is_registered, struct host_range *range)
{
    pthread_rwlock_wrlock(&pinned.lock);
    struct host_range *found = find((uint64_t)(uintptr_t)pointer);
    const bool fits = found != NULL && found->start == (uint64_t)(uintptr_t)pointer &&
                      found->is_registered == is_registered;
    if (fits) {
        *range = *found;
        erase(found);
    }
    pthread_rwlock_unlock(&pinned.lock);
    return fits;
}

ENTRY cuMemFreeHost(void *pointer)
{
    ENTER(context);
    REQUIRE(pointer != NULL);
    TRY(capture_refuse_unsafe());
    struct host_range range;
    if (!host_look((uint64_t)(uintptr_t)pointer, &range))
        return CUDA_ERROR_INVALID_VALUE;
    /* Copies that are queued may still write to it. */
    TRY(streams_wait(range.context));
    if (!take_out(pointer, false, &range))
        return CUDA_ERROR_INVALID_VALUE;
    munmap(pointer, whole_pages(range.bytes));
    return CUDA_SUCCESS;
}

/* --- registering --------------------------------------------------------------------------- */

ENTRY cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned flags)
{
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    ENTER(context);
    REQUIRE(pointer != NULL && bytes > 0 && (flags & ~known) == 0);
    REQUIRE((uint64_t)(uintptr_t)pointer <= UINT64_MAX - bytes);
    TRY(capture_refuse_unsafe());
    if ((flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0)
        return CUDA_ERROR_NOT_SUPPORTED;
    return add(context, (uint64_t)(uintptr_t)pointer, bytes, flags, true);
}
TWIN(cuMemHostRegister, cuMemHostRegister_v2);

ENTRY cuMemHostUnregister(void *pointer)
{
    ENTER(context);
    REQUIRE(pointer != NULL);
    TRY(capture_refuse_unsafe());
    struct host_range range;
    return take_out(pointer, true, &range) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

/* --- asking -------------------------------------------------------------------------------- */

/* One address for host and devices: there is nothing to translate. */
ENTRY cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *pointer, unsigned flags)
{
    ENTER(context);
    struct host_range range;
    REQUIRE(address != NULL && pointer != NULL && flags == 0);
    if (!host_look((uint64_t)(uintptr_t)pointer, &range))
        return CUDA_ERROR_INVALID_VALUE;
    *address = (CUdeviceptr)(uintptr_t)pointer;
    return CUDA_SUCCESS;
}

ENTRY cuMemHostGetFlags(unsigned *flags, void *pointer)
{
    ENTER(context);
    struct host_range range;
    REQUIRE(flags != NULL && pointer != NULL);
    if (!host_look((uint64_t)(uintptr_t)pointer, &range) || range.is_registered)
        return CUDA_ERROR_INVALID_VALUE;
    /* With one address space all of it is portable and mapped, whatever was asked for. */
    *flags = range.flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}
