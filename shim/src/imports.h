/*
 * Libraries that do not look into the global scope first, and so would bind past this library.
 */
#pragma once

#include <stdbool.h>

enum watch { WATCH_DEEPBIND = 1, WATCH_NAMESPACES = 2 };

/* From now on, libraries may be bound to themselves first, or live in namespaces of their own. */
void imports_watch(enum watch what);
bool imports_watched(enum watch what);

/*
 * Points the imports of libraries that came since the last call at our functions. `handle` is what
 * dlsym was asked with: the only sight of a library in another namespace. Free until something is
 * watched.
 */
void imports_refresh(void *handle);
