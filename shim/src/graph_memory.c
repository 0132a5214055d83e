/*
 * Memory of graphs.
 *
 * An allocation node takes addresses when it is made and memory when the graph is launched, or
 * uploaded; the driver keeps that memory for further launches until it is told to trim. What a
 * launch will take at most is known from the nodes, and taken from the account before; what it has
 * taken is asked from the driver after.
 */
#include "graph_memory.h"

#include <string.h>
#include <sys/mman.h>

#include "allocations.h"
#include "charge.h"
#include "device.h"
#include "private.h"
#include "spin.h"
#include "throttle.h"

struct reserve {
    uint64_t charged_bytes;
    uint64_t shrinks; /* how often it has become less */
};

struct reserves {
    uint32_t lock;
    struct reserve of[DEVICES_MOST];
};

static void *root;

/* Whether any graph with allocation nodes has been made executable: others cost nothing here. */
static uint8_t are_graphs_allocating;

static struct reserves *lock_reserves(void)
{
    struct reserves *reserves = private_root(&root, sizeof *reserves);
    if (reserves != NULL)
        spin_lock(&reserves->lock);
    return reserves;
}

/* Charges what the driver has reserved. `ahead` has been taken already. List locked. */
static void settle(struct reserves *reserves, int device, uint64_t ahead)
{
    struct reserve *reserve = &reserves->of[device];
    const uint64_t charged = reserve->charged_bytes + ahead;
    uint64_t reserved = charged;
    real.cuDeviceGetGraphMemAttribute(device_ordinal(device),
                                      CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved);
    if (reserved > charged)
        ledger_force((unsigned)device, reserved - charged);
    else if (reserved < charged)
        ledger_release((unsigned)device, charged - reserved);
    reserve->shrinks += reserved < reserve->charged_bytes;
    reserve->charged_bytes = reserved;
}

void graph_memory_settle(void)
{
    struct reserves *reserves = lock_reserves();
    if (reserves == NULL)
        return;
    for (int device = 0; are_graphs_allocating && device < (int)ledger_devices(); device++)
        settle(reserves, device, 0);
    spin_unlock(&reserves->lock);
}

void graph_memory_trim(int device)
{
    struct reserves *reserves = lock_reserves();
    if (reserves == NULL)
        return;
    if (reserves->of[device].charged_bytes > 0) {
        (void)REAL(cuDeviceGraphMemTrim, device_ordinal(device));
        settle(reserves, device, 0);
    }
    spin_unlock(&reserves->lock);
}

/* --- what a graph will take ---------------------------------------------------------------- */

struct needs {
    uint64_t bytes[DEVICES_MOST];
    bool any;
};

static void add_graph(struct needs *needs, CUgraph graph);

static void add_node(struct needs *needs, CUgraphNode node)
{
    CUgraphNodeType type;
    if (real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
        CUgraph child;
        if (real.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS)
            add_graph(needs, child);
    } else if (type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
        CUDA_MEM_ALLOC_NODE_PARAMS alloc;
        if (real.cuGraphMemAllocNodeGetParams(node, &alloc) != CUDA_SUCCESS)
            return;
        const int device = device_of(alloc.poolProps.location.id);
        if (alloc.poolProps.location.type == CU_MEM_LOCATION_TYPE_DEVICE && device >= 0) {
            needs->bytes[device] += charge_of(alloc.bytesize);
            needs->any = true;
        }
    }
}

static void add_graph(struct needs *needs, CUgraph graph)
{
    size_t count = 0;
    if (real.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0)
        return;
    CUgraphNode *nodes = private_pages(count * sizeof *nodes);
    if (nodes == NULL)
        return;
    const size_t room = count;
    if (real.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count && i < room; i++)
            add_node(needs, nodes[i]);
    munmap(nodes, room * sizeof *nodes);
}

/* One entry for each device that an executable graph allocates on. */
static uint64_t graph_key(CUgraphExec graph, int device)
{
    return (uint64_t)(uintptr_t)graph * DEVICES_MOST + (unsigned)device;
}

/*
 * While the driver has not let go of anything since a graph was last launched, it launches in the
 * same memory again. The owner of a graph's entry says when that was; zero is never.
 */
static uint64_t residence(const struct reserve *reserve)
{
    return reserve->shrinks + 1;
}

static void remember(CUgraphExec graph, const struct needs *needs)
{
    __atomic_store_n(&are_graphs_allocating, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&charge_has_slack, 1, __ATOMIC_RELAXED);
    for (int device = 0; device < DEVICES_MOST; device++)
        if (needs->bytes[device] > 0)
            allocation_join(KIND_GRAPH, graph_key(graph, device), needs->bytes[device], device, 0);
}

/* What a launch needs beyond what the driver has for it. */
static void needs_of_launch(CUgraphExec graph, struct needs *needs)
{
    *needs = (struct needs){.any = false};
    struct reserves *reserves = lock_reserves();
    if (reserves == NULL)
        return;
    for (int device = 0; device < (int)ledger_devices(); device++) {
        struct allocation entry;
        if (!allocation_find(KIND_GRAPH, graph_key(graph, device), &entry))
            continue;
        settle(reserves, device, 0);
        if (entry.owner != residence(&reserves->of[device])) {
            needs->bytes[device] = entry.bytes;
            needs->any = true;
        }
    }
    spin_unlock(&reserves->lock);
}

/* Takes all of it or nothing. */
static bool take(const struct needs *needs)
{
    for (int device = 0; device < DEVICES_MOST; device++) {
        if (needs->bytes[device] == 0 || charge_take(device, needs->bytes[device]))
            continue;
        while (--device >= 0)
            if (needs->bytes[device] > 0)
                charge_return(device, needs->bytes[device]);
        return false;
    }
    return true;
}

/* Corrects what was taken to what the driver has reserved; the graph is resident if it succeeded.
 */
static void settle_launch(CUgraphExec graph, const struct needs *needs, CUresult result)
{
    struct reserves *reserves = lock_reserves();
    if (reserves == NULL)
        return;
    for (int device = 0; device < (int)ledger_devices(); device++) {
        if (needs->bytes[device] == 0)
            continue;
        settle(reserves, device, needs->bytes[device]);
        struct allocation entry;
        const uint64_t key = graph_key(graph, device);
        if (result == CUDA_SUCCESS && allocation_leave(KIND_GRAPH, key, &entry) != STANDING_NONE)
            allocation_join(KIND_GRAPH, key, entry.bytes, device, residence(&reserves->of[device]));
    }
    spin_unlock(&reserves->lock);
}

/* --- replacements -------------------------------------------------------------------------- */

/* Calls what makes a graph resident, with the memory for it. */
#define RESIDES(name)                                                                              \
    static CUresult reside_by_##name(CUgraphExec graph, CUstream stream)                           \
    {                                                                                              \
        if (LIKELY(!are_graphs_allocating))                                                        \
            return REAL(name, graph, stream);                                                      \
        struct needs needs;                                                                        \
        needs_of_launch(graph, &needs);                                                            \
        if (needs.any && !take(&needs))                                                            \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        const CUresult result = REAL(name, graph, stream);                                         \
        if (needs.any)                                                                             \
            settle_launch(graph, &needs, result);                                                  \
        return result;                                                                             \
    }

#define UPLOADS(name)                                                                              \
    RESIDES(name)                                                                                  \
    EXPORT CUresult name(CUgraphExec graph, CUstream stream)                                       \
    {                                                                                              \
        ENTER(name, graph, stream);                                                                \
        return reside_by_##name(graph, stream);                                                    \
    }
UPLOADS(cuGraphUpload)
UPLOADS(cuGraphUpload_ptsz)

#define LAUNCHES(name, per_thread)                                                                 \
    RESIDES(name)                                                                                  \
    EXPORT CUresult name(CUgraphExec graph, CUstream stream)                                       \
    {                                                                                              \
        ENTER(name, graph, stream);                                                                \
        struct probe *probe = throttle_graph(graph, stream, per_thread);                           \
        const CUresult result = reside_by_##name(graph, stream);                                   \
        throttle_launched(probe, result);                                                          \
        return result;                                                                             \
    }
LAUNCHES(cuGraphLaunch, false)
LAUNCHES(cuGraphLaunch_ptsz, true)

/* `uploads` tells whether the call also takes the memory. */
#define INSTANTIATES(name, uploads, parameters, ...)                                               \
    EXPORT CUresult name parameters                                                                \
    {                                                                                              \
        ENTER(name, __VA_ARGS__);                                                                  \
        struct needs needs = {.any = false};                                                       \
        add_graph(&needs, graph);                                                                  \
        if (!needs.any)                                                                            \
            return real.name(__VA_ARGS__);                                                         \
        const bool takes = (uploads);                                                              \
        if (takes && !take(&needs))                                                                \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                       \
        const CUresult result = REAL(name, __VA_ARGS__);                                           \
        if (result == CUDA_SUCCESS)                                                                \
            remember(*made, &needs);                                                               \
        if (takes)                                                                                 \
            settle_launch(result == CUDA_SUCCESS ? *made : NULL, &needs, result);                  \
        return result;                                                                             \
    }
INSTANTIATES(cuGraphInstantiate, false,
             (CUgraphExec * made, CUgraph graph, CUgraphNode *error_node, char *log, size_t bytes),
             made, graph, error_node, log, bytes)
INSTANTIATES(cuGraphInstantiate_v2, false,
             (CUgraphExec * made, CUgraph graph, CUgraphNode *error_node, char *log, size_t bytes),
             made, graph, error_node, log, bytes)
INSTANTIATES(cuGraphInstantiateWithFlags, flags &CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD,
             (CUgraphExec * made, CUgraph graph, unsigned long long flags), made, graph, flags)
INSTANTIATES(cuGraphInstantiateWithParams,
             how != NULL && (how->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD),
             (CUgraphExec * made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how), made, graph,
             how)
INSTANTIATES(cuGraphInstantiateWithParams_ptsz,
             how != NULL && (how->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD),
             (CUgraphExec * made, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *how), made, graph,
             how)

EXPORT CUresult cuGraphExecDestroy(CUgraphExec graph)
{
    ENTER(cuGraphExecDestroy, graph);
    for (int device = 0; are_graphs_allocating && device < (int)ledger_devices(); device++) {
        struct allocation entry;
        allocation_leave(KIND_GRAPH, graph_key(graph, device), &entry);
    }
    const CUresult result = REAL(cuGraphExecDestroy, graph);
    charge_settle();
    return result;
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice ordinal)
{
    ENTER(cuDeviceGraphMemTrim, ordinal);
    const CUresult result = REAL(cuDeviceGraphMemTrim, ordinal);
    charge_settle();
    return result;
}
