/*
 * The arbiter between tenants that write anything into their usage files, and an owner who resizes
 * them all the time: built from the arbiter's own sources under a sanitizer, driven by
 * test_arbiter_sanitizers.py.
 *
 * Arguments: how many ticks, then a limits and a usage file for each container, all of policy
 * `fixed`; two share a GPU. Prints "kept" when limits were whole at every moment, nobody was
 * granted more than its largest share, and grants were taken back in the end.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "arbiter.h"

enum { CONTAINERS_MAX = 8, SHARE = 2500, LARGER_SHARE = 5000, GARBAGE_WORDS = 64 };

static const uint64_t TICK_NS = 25000000;
static const uint64_t LIFETIME_NS = 600000000;

struct container {
    const char *limits;
    const char *usage;
    struct usage_header shape;
    unsigned number;
    bool failed;      /* the tenant's to say ... */
    bool was_granted; /* ... and this, too */
};

static struct container containers[CONTAINERS_MAX];
static struct arbiter_seat seats[CONTAINERS_MAX];
static unsigned container_count;
static bool is_over;

static bool goes_on(void)
{
    return !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE);
}

static int opened(const char *path, int flags)
{
    int descriptor = open(path, flags | O_CLOEXEC);
    if (descriptor < 0) {
        perror(path);
        exit(2);
    }
    return descriptor;
}

static void *mapped(int descriptor, int protection)
{
    void *image = mmap(NULL, LIMITS_FILE_BYTES, protection, MAP_SHARED, descriptor, 0);
    if (image == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    return image;
}

/* --- a tenant ------------------------------------------------------------------------------ */

static uint64_t garbage(unsigned *random)
{
    uint64_t word = (uint64_t)rand_r(random) << 32 | (uint64_t)rand_r(random);
    switch (word % 4) {
    case 0:
        return word;
    case 1:
        return UINT64_MAX - word % 3;
    case 2: /* a code word, as owners and the mark are */
        return (word >> 24) * USAGE_CODE + 1;
    default:
        return word % 1000000000;
    }
}

/* The words after the header's checksum are the tenant's; what the header says is as good. */
static void spoil(const struct container *container, int usage, unsigned *random)
{
    uint32_t places[] = {offsetof(struct usage_header, mark), container->shape.counters_at,
                         container->shape.owners_at, container->shape.words_at};
    uint64_t words[GARBAGE_WORDS];
    for (unsigned i = 0; i < GARBAGE_WORDS; i++)
        words[i] = garbage(random);
    uint32_t at = places[(unsigned)rand_r(random) % 4];
    size_t bytes = at == places[0] ? sizeof words[0] : sizeof words;
    bool written = pwrite(usage, words, bytes, at) == (ssize_t)bytes;
    if (rand_r(random) % 16 == 0)
        written = ftruncate(usage, (unsigned)rand_r(random) % container->shape.file_bytes) == 0 &&
                  ftruncate(usage, container->shape.file_bytes) == 0;
    if (!written)
        exit(2);
}

static void *live(void *argument)
{
    struct container *container = argument;
    unsigned random = container->number + 1;
    int usage = opened(container->usage, O_RDWR);
    int limits = opened(container->limits, O_RDONLY);
    const void *image = mapped(limits, PROT_READ);
    while (goes_on()) {
        struct limits_body body;
        spoil(container, usage, &random);
        /* A reader can be lapped by two writers; it reads again, as the shim does at every tick. */
        int slot = limits_read(image, LIMITS_FILE_BYTES, ACCOUNT_COMPUTE, &body);
        if (slot < 0 && slot != LIMITS_DAMAGED)
            container->failed = true;
        if (slot < 0)
            continue;
        container->failed |= body.devices[0].grant > LARGER_SHARE;
        if (body.devices[0].grant_until_ns != 0)
            __atomic_store_n(&container->was_granted, true, __ATOMIC_RELEASE);
    }
    close(limits);
    close(usage);
    return NULL;
}

/* --- the owner ----------------------------------------------------------------------------- */

static void resize(int limits, void *image, uint32_t share)
{
    struct limits_body body;
    flock(limits, LOCK_EX);
    if (limits_read(image, LIMITS_FILE_BYTES, ACCOUNT_COMPUTE, &body) >= 0) {
        body.devices[0].share = share;
        body.devices[0].grant_until_ns = 0;
        limits_publish(image, LIMITS_FILE_BYTES, &body);
    }
    flock(limits, LOCK_UN);
}

static void *own(void *unused)
{
    int limits[CONTAINERS_MAX];
    void *images[CONTAINERS_MAX];
    for (unsigned i = 0; i < container_count; i++) {
        limits[i] = opened(containers[i].limits, O_RDWR);
        images[i] = mapped(limits[i], PROT_READ | PROT_WRITE);
    }
    for (unsigned turn = 0; goes_on(); turn++) {
        for (unsigned i = 0; i < container_count; i++)
            resize(limits[i], images[i], turn % 2 == 0 ? SHARE : LARGER_SHARE);
        usleep(200);
    }
    return unused;
}

/* --- the arbiter --------------------------------------------------------------------------- */

static void take_seat(unsigned number)
{
    struct container *container = &containers[number];
    int usage = opened(container->usage, O_RDONLY);
    int limits = opened(container->limits, O_RDWR);
    container->number = number;
    if (pread(usage, &container->shape, sizeof container->shape, 0) != sizeof container->shape)
        exit(2);
    seats[number] = (struct arbiter_seat){
        .usage_fd = usage,
        .limits_fd = limits,
        .limits = mapped(limits, PROT_READ | PROT_WRITE),
        .limits_bytes = LIMITS_FILE_BYTES,
        .gpu = number / 2,
        .counters_at = container->shape.counters_at,
        .owners_at = container->shape.owners_at,
        .busy_at = container->shape.words_at,
        .slot_count = container->shape.slot_count,
    };
}

static bool is_everybody_served(void)
{
    for (unsigned i = 0; i < container_count; i++)
        if (!__atomic_load_n(&containers[i].was_granted, __ATOMIC_ACQUIRE))
            return false;
    return true;
}

/* Ticks for as long as it takes everybody to see a grant, whenever they are scheduled. */
static void arbitrate(unsigned ticks)
{
    static struct arbiter_charge charges[USAGE_SLOTS_MAX];
    uint64_t now_ns = LIFETIME_NS;
    for (unsigned i = 0; i < ticks || !is_everybody_served(); i++, now_ns += TICK_NS) {
        arbiter_tick(seats, container_count, now_ns, LIFETIME_NS);
        for (unsigned seat = 0; seat < container_count; seat++)
            arbiter_charges(&seats[seat], charges, USAGE_SLOTS_MAX);
    }
    arbiter_run(seats, container_count, 3 * TICK_NS, LIFETIME_NS);
}

static bool is_withdrawn(const struct arbiter_seat *seat)
{
    struct limits_body body;
    return limits_read(seat->limits, LIMITS_FILE_BYTES, ACCOUNT_COMPUTE, &body) >= 0 &&
           body.devices[0].grant == 0 && body.devices[0].grant_until_ns == 0;
}

int main(int count, char **arguments)
{
    pthread_t threads[CONTAINERS_MAX + 1];
    if (count < 4 || count % 2 != 0 || count > 2 + 2 * CONTAINERS_MAX)
        return 2;
    container_count = (unsigned)(count - 2) / 2;
    for (unsigned i = 0; i < container_count; i++) {
        containers[i].limits = arguments[2 + 2 * i];
        containers[i].usage = arguments[3 + 2 * i];
        take_seat(i);
    }
    for (unsigned i = 0; i < container_count; i++)
        pthread_create(&threads[i], NULL, live, &containers[i]);
    pthread_create(&threads[container_count], NULL, own, NULL);
    arbitrate((unsigned)atoi(arguments[1]));
    __atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
    for (unsigned i = 0; i <= container_count; i++)
        pthread_join(threads[i], NULL);
    arbiter_withdraw(seats, container_count);
    bool kept = true;
    for (unsigned i = 0; i < container_count; i++)
        kept =
            kept && !containers[i].failed && containers[i].was_granted && is_withdrawn(&seats[i]);
    puts(kept ? "kept" : "broken");
    return kept ? 0 : 1;
}
