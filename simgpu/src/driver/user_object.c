/*
 * User objects: what a program wants destroyed when the graphs that use it are gone.
 */
#include <stdlib.h>

#include "graph.h"

struct user_object {
    struct user_object *next; /* of those that wait for their end */
    void *pointer;
    CUhostFn destroy;
    unsigned references;
};

static struct table objects = TABLE(struct user_object, 1 << 20);
static struct user_object *dead;

void user_objects_forget(void)
{
    table_forget(&objects);
    dead = NULL;
}

/* Under the lock. */
static void drop(struct user_object *object, unsigned count)
{
    object->references -= count < object->references ? count : object->references;
    if (object->references > 0)
        return;
    object->next = dead;
    __atomic_store_n(&dead, object, __ATOMIC_RELAXED);
}

void user_objects_bury(void)
{
    if (LIKELY(__atomic_load_n(&dead, __ATOMIC_RELAXED) == NULL))
        return;
    order_lock();
    while (dead != NULL) {
        struct user_object *object = dead;
        const CUhostFn destroy = object->destroy;
        void *pointer = object->pointer;
        __atomic_store_n(&dead, object->next, __ATOMIC_RELAXED);
        table_give(&objects, object);
        order_unlock();
        destroy(pointer);
        order_lock();
    }
    order_unlock();
}

/* --- what graphs hold ---------------------------------------------------------------------- */

CUresult user_reference_add(struct user_reference **users, size_t *count,
                            struct user_object *object, unsigned references)
{
    for (size_t i = 0; i < *count; i++) {
        if ((*users)[i].object == object) {
            (*users)[i].count += references;
            return CUDA_SUCCESS;
        }
    }
    struct user_reference *larger = realloc(*users, (*count + 1) * sizeof *larger);
    if (larger == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *users = larger;
    larger[(*count)++] = (struct user_reference){object, references};
    return CUDA_SUCCESS;
}

/* A copy holds each object once, however often the original does. */
CUresult user_references_copy(struct user_reference **to, size_t *to_count,
                              const struct user_reference *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        TRY(user_reference_add(to, to_count, from[i].object, 1));
        from[i].object->references++;
    }
    return CUDA_SUCCESS;
}

void user_references_drop(struct user_reference **users, size_t *count)
{
    for (size_t i = 0; i < *count; i++)
        drop((*users)[i].object, (*users)[i].count);
    free(*users);
    *users = NULL;
    *count = 0;
}

/* --- entries ------------------------------------------------------------------------------- */

ENTRY cuUserObjectCreate(CUuserObject *handle, void *pointer, CUhostFn destroy, unsigned references,
                         unsigned flags)
{
    TRY(driver_check());
    REQUIRE(handle != NULL && destroy != NULL && references > 0 && references <= INT32_MAX);
    REQUIRE(flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    order_lock();
    struct user_object *object = table_take(&objects);
    if (object != NULL) {
        object->pointer = pointer;
        object->destroy = destroy;
        object->references = references;
        *handle = (CUuserObject)(uintptr_t)object;
    }
    order_unlock();
    return object != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* A living object and the lock. */
static CUresult object_lock(CUuserObject handle, unsigned count, struct user_object **object)
{
    TRY(driver_check());
    REQUIRE(count > 0 && count <= INT32_MAX);
    *object = (struct user_object *)(uintptr_t)handle;
    order_lock();
    if (table_holds(&objects, *object) && (*object)->references > 0)
        return CUDA_SUCCESS;
    order_unlock();
    return CUDA_ERROR_INVALID_VALUE;
}

ENTRY cuUserObjectRetain(CUuserObject handle, unsigned count)
{
    struct user_object *object = NULL;
    TRY(object_lock(handle, count, &object));
    object->references += count;
    order_unlock();
    return CUDA_SUCCESS;
}

ENTRY cuUserObjectRelease(CUuserObject handle, unsigned count)
{
    struct user_object *object = NULL;
    TRY(object_lock(handle, count, &object));
    drop(object, count);
    order_unlock();
    user_objects_bury();
    return CUDA_SUCCESS;
}

ENTRY cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count,
                              unsigned flags)
{
    struct user_object *object = NULL;
    struct graph *graph = NULL;
    REQUIRE((flags & ~(unsigned)CU_GRAPH_USER_OBJECT_MOVE) == 0);
    TRY(object_lock(handle, count, &object));
    CUresult result = graph_get(graph_handle, &graph);
    if (result == CUDA_SUCCESS)
        result = user_reference_add(&graph->users, &graph->user_count, object, count);
    if (result == CUDA_SUCCESS && flags != CU_GRAPH_USER_OBJECT_MOVE)
        object->references += count;
    order_unlock();
    return result;
}

ENTRY cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count)
{
    struct user_object *object = NULL;
    struct graph *graph = NULL;
    TRY(object_lock(handle, count, &object));
    CUresult result = graph_get(graph_handle, &graph);
    struct user_reference *held = NULL;
    for (size_t i = 0; result == CUDA_SUCCESS && i < graph->user_count; i++)
        if (graph->users[i].object == object)
            held = &graph->users[i];
    if (held == NULL || held->count < count) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        held->count -= count;
        if (held->count == 0)
            *held = graph->users[--graph->user_count];
        drop(object, count);
    }
    order_unlock();
    user_objects_bury();
    return result;
}
