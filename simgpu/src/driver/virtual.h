/* Physical memory and where it is mapped, as the files of both know each other. */
#pragma once

#include "memory.h"

/* Memory without an address: what cuMemCreate, an import or cuMulticastCreate answers with. */
struct physical {
    CUmemAllocationProp properties;
    uint64_t bytes;
    unsigned references;  /* handles that the program holds, and mappings */
    unsigned handles;     /* of those, the program's */
    bool is_booked;       /* charged to its device: not imported, not the host's */
    int file;             /* what is mapped ... */
    uint64_t file_offset; /* ... and from where */
    bool owns_file;       /* one of its own, which can be given to other processes */
    struct piece *share;  /* else: its part of the file that all others share */
    struct multicast *multicast;
};

/* What one piece of addresses shows. */
struct mapping {
    struct mapping *next; /* by address */
    uint64_t start;
    uint64_t bytes;
    uint64_t offset; /* in the physical memory */
    struct physical *physical;
    uint8_t access[SIM_DEVICES]; /* CUmemAccess_flags, by ordinal */
    uint8_t host_access;
};

/* --- physical.c; all with memory's lock held, except where it says otherwise --------------- */

/* The program's handle; NULL when it is none. Needs no lock. */
struct physical *physical_of(CUmemGenericAllocationHandle handle);

static inline CUmemGenericAllocationHandle physical_handle(const struct physical *physical)
{
    return (CUmemGenericAllocationHandle)(uintptr_t)physical;
}

/* Host memory to back so many bytes, exportable or not; nothing is booked. */
CUresult physical_create(const CUmemAllocationProp *properties, uint64_t bytes, bool exportable,
                         struct physical **physical);
void physical_keep(struct physical *physical);
void physical_let_go(struct physical *physical);

/* Closes files and forgets all handles, as a forked child does. Needs no lock. */
void physicals_forget(void);

/* CUDA_ERROR_INVALID_VALUE for what is no handle of physical memory. Takes the lock itself. */
CUresult virtual_check_handle(CUmemGenericAllocationHandle handle);

/* --- virtual.c ----------------------------------------------------------------------------- */

/* The mapping that an address lies in, or NULL; lock held. */
struct mapping *mapping_at(uint64_t address);

/* The types of handles that what is mapped at a piece was created for. */
uint64_t reserved_handle_types(const struct piece *piece);

void virtual_forget(void);

/* --- multicast.c --------------------------------------------------------------------------- */

void multicast_end(struct multicast *multicast);
bool multicast_is_complete(const struct multicast *multicast);
