/*
 * A writer of limits that is killed again and again while it writes.
 *
 *   torn PATH ROUNDS     a reader beside it always finds the last update or the one before, whole
 */

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "limits_file.h"

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "torn: " __VA_ARGS__);                                                 \
            fprintf(stderr, "\n");                                                                 \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void *image;
static uint64_t *published; /* the last generation that was published for sure */

static struct limits_body body_of(uint64_t generation)
{
    struct limits_body body = {.head = {.device_count = LIMITS_DEVICES, .policy = LIMITS_FIXED}};
    body.head.generation = generation;
    for (unsigned i = 0; i < LIMITS_DEVICES; i++) {
        body.devices[i].uuid[0] = (uint8_t)i;
        body.devices[i].limit_bytes = generation * 4096;
        body.devices[i].grant_until_ns = generation;
    }
    return body;
}

static _Noreturn void write_for_ever(pid_t parent, uint64_t generation)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    for (;; generation++) {
        struct limits_body body = body_of(generation);
        if (limits_publish(image, LIMITS_FILE_BYTES, &body) != 0)
            _exit(1);
        __atomic_store_n(published, generation, __ATOMIC_RELEASE);
    }
}

static uint64_t read_whole(void)
{
    struct limits_body body;
    uint64_t least = __atomic_load_n(published, __ATOMIC_ACQUIRE);
    int slot = limits_read(image, LIMITS_FILE_BYTES, ACCOUNT_MEMORY, &body);
    /* A reader that a busy writer laps again and again keeps its copy; it is never lied to. */
    if (slot < 0)
        return 0;
    uint64_t generation = body.head.generation;
    CHECK(generation >= least, "%" PRIu64 " was read after %" PRIu64, generation, least);
    for (unsigned i = 0; i < LIMITS_DEVICES; i++)
        CHECK(body.devices[i].limit_bytes == generation * 4096 &&
                  body.devices[i].grant_until_ns == generation,
              "device %u is not of generation %" PRIu64, i, generation);
    return generation;
}

int main(int count, char **words)
{
    CHECK(count == 3, "torn PATH ROUNDS");
    int fd = open(words[1], O_RDWR);
    image = mmap(NULL, LIMITS_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    published = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(image != MAP_FAILED && published != MAP_FAILED, "no file");
    pid_t self = getpid();
    *published = 1;
    struct limits_body first = body_of(1);
    CHECK(limits_publish(image, LIMITS_FILE_BYTES, &first) == 0, "no limits");
    uint64_t seed = 1;
    uint64_t halves = 0;
    for (int round = 0; round < atoi(words[2]); round++) {
        pid_t writer = fork();
        if (writer == 0)
            write_for_ever(self, *published + 1);
        struct timespec end;
        clock_gettime(CLOCK_MONOTONIC, &end);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        end.tv_nsec += (long)(seed >> 44); /* up to a millisecond */
        struct timespec now;
        do {
            read_whole();
            clock_gettime(CLOCK_MONOTONIC, &now);
        } while (now.tv_sec * 1000000000 + now.tv_nsec < end.tv_sec * 1000000000 + end.tv_nsec);
        kill(writer, SIGKILL);
        waitpid(writer, NULL, 0);
        uint64_t left = read_whole();
        CHECK(left == *published || left == *published + 1,
              "%" PRIu64 " is left, %" PRIu64 " was published", left, *published);
        const struct limits_file *file = image;
        halves += file->slots[0].sequence == 0 || file->slots[1].sequence == 0;
        *published = left;
    }
    printf("%" PRIu64 " updates, %" PRIu64 " left half-written\n", *published, halves);
    return 0;
}
