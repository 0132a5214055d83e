/*
 * Memory that the driver keeps without anybody using it.
 */
#include "charge.h"

#include "graph_memory.h"
#include "pool.h"

uint8_t charge_has_slack;

void charge_settle_slowly(void)
{
    pools_settle();
    graph_memory_settle();
}

static bool fits(unsigned device, uint64_t bytes)
{
    const uint64_t limit = ledger_limit(device);
    const uint64_t used = ledger_used(device);
    return limit == UINT64_MAX || (used <= limit && bytes <= limit - used);
}

/* As the driver does before it answers that there is no memory. */
void charge_make_room(int device, uint64_t bytes)
{
    if (device < 0 || fits((unsigned)device, bytes))
        return;
    charge_settle_slowly();
    if (fits((unsigned)device, bytes))
        return;
    pools_trim(device);
    graph_memory_trim(device);
}
