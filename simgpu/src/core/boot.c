/* Tells a node of this boot from one that a reboot left behind on the disk. */
#define _GNU_SOURCE
#include "boot.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "core.h"

void sim_boot_read(char id[SIM_BOOT_ID_BYTES])
{
    memset(id, 0, SIM_BOOT_ID_BYTES);
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return;
    ssize_t length = read(file, id, SIM_BOOT_ID_BYTES - 1);
    close(file);
    id[length > 0 ? length : 0] = '\0';
    id[strcspn(id, "\n")] = '\0';
}

bool sim_boot_is_ours(const char id[SIM_BOOT_ID_BYTES], uint64_t made_wall_ns)
{
    char ours[SIM_BOOT_ID_BYTES];
    sim_boot_read(ours);
    bool known = ours[0] && id[0];
    return made_wall_ns <= sim_now() && (!known || strncmp(id, ours, sizeof(ours)) == 0);
}
