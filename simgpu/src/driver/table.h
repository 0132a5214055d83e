/*
 * Objects that programs hold by pointer: contexts, streams, events, arrays, pools ...
 *
 * A program may pass any pointer, one that was destroyed or never was a handle. Each kind of object
 * lives in a range of addresses of its own that is never unmapped, so that asking whether a pointer
 * is a living object costs a comparison and never touches foreign memory.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct table {
    const size_t object_bytes;
    const size_t capacity; /* objects alive at once; address space only, memory comes with use */
    pthread_mutex_t lock;
    char *slots; /* reserved by the first table_take */
    size_t used; /* slots ever handed out */
    void *oldest_free;
    void *newest_free; /* reused in order of release: a stale handle stays stale for long */
    size_t live;
};

#define TABLE(type, most)                                                                          \
    {                                                                                              \
        .object_bytes = sizeof(type),                                                              \
        .capacity = (most),                                                                        \
        .lock = PTHREAD_MUTEX_INITIALIZER,                                                         \
    }

/* A zeroed object, or NULL when there is no room. */
void *table_take(struct table *table);

/* Ends an object's life; its pointer stops being a handle. */
void table_give(struct table *table, void *object);

/* Whether this is a living object of the table; any pointer may be asked about. */
bool table_holds(const struct table *table, const void *object);

/* Calls `visit` for every living object; it may give back the object it is called with. */
void table_each(struct table *table, void (*visit)(void *object, void *argument), void *argument);

/* Forgets all objects, as a forked child must: what they stood for is the parent's. */
void table_forget(struct table *table);
