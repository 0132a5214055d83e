/* Objects that programs hold by pointer, each kind in addresses of its own. */
#include "table.h"

#include <string.h>
#include <sys/mman.h>

/* In front of every object; an object's pointer is a handle while `live` is set. */
struct slot {
    uint64_t live;
    struct slot *next_free;
};

static size_t slot_bytes(const struct table *table)
{
    return (sizeof(struct slot) + table->object_bytes + 63) & ~(size_t)63;
}

static struct slot *slot_of(const struct table *table, const void *object)
{
    const char *slots = __atomic_load_n(&table->slots, __ATOMIC_ACQUIRE);
    const uintptr_t offset = (uintptr_t)object - sizeof(struct slot) - (uintptr_t)slots;
    if (slots == NULL || offset >= table->capacity * slot_bytes(table) ||
        offset % slot_bytes(table) != 0)
        return NULL;
    return (struct slot *)(uintptr_t)(slots + offset);
}

static bool reserve(struct table *table)
{
    void *slots = mmap(NULL, table->capacity * slot_bytes(table), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (slots == MAP_FAILED)
        return false;
    __atomic_store_n(&table->slots, slots, __ATOMIC_RELEASE);
    return true;
}

static struct slot *unused(struct table *table)
{
    struct slot *slot = table->oldest_free;
    /* A freed slot rests until another was freed after it, however few objects are in use. */
    if (slot != NULL && (slot->next_free != NULL || table->used == table->capacity)) {
        table->oldest_free = slot->next_free;
        if (table->oldest_free == NULL)
            table->newest_free = NULL;
        return slot;
    }
    if (table->used == table->capacity || (table->slots == NULL && !reserve(table)))
        return NULL;
    return (struct slot *)(void *)(table->slots + table->used++ * slot_bytes(table));
}

void *table_take(struct table *table)
{
    pthread_mutex_lock(&table->lock);
    struct slot *slot = unused(table);
    if (slot != NULL) {
        memset(slot + 1, 0, table->object_bytes);
        __atomic_store_n(&slot->live, 1, __ATOMIC_RELEASE);
        table->live++;
    }
    pthread_mutex_unlock(&table->lock);
    return slot != NULL ? slot + 1 : NULL;
}

void table_give(struct table *table, void *object)
{
    struct slot *slot = slot_of(table, object);
    pthread_mutex_lock(&table->lock);
    __atomic_store_n(&slot->live, 0, __ATOMIC_RELEASE);
    slot->next_free = NULL;
    if (table->newest_free != NULL)
        ((struct slot *)table->newest_free)->next_free = slot;
    else
        table->oldest_free = slot;
    table->newest_free = slot;
    table->live--;
    pthread_mutex_unlock(&table->lock);
}

bool table_holds(const struct table *table, const void *object)
{
    const struct slot *slot = slot_of(table, object);
    return slot != NULL && __atomic_load_n(&slot->live, __ATOMIC_ACQUIRE) != 0;
}

void table_each(struct table *table, void (*visit)(void *object, void *argument), void *argument)
{
    pthread_mutex_lock(&table->lock);
    const size_t used = table->used;
    pthread_mutex_unlock(&table->lock);
    for (size_t number = 0; number < used; number++) {
        struct slot *slot = (struct slot *)(void *)(table->slots + number * slot_bytes(table));
        if (__atomic_load_n(&slot->live, __ATOMIC_ACQUIRE) != 0)
            visit(slot + 1, argument);
    }
}

void table_forget(struct table *table)
{
    if (table->slots != NULL)
        munmap(table->slots, table->capacity * slot_bytes(table));
    table->slots = NULL;
    table->used = table->live = 0;
    table->oldest_free = table->newest_free = NULL;
    table->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}
