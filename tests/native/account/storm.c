/*
 * Many processes at once on one account. A witness in shared memory, kept apart from the account,
 * holds what was granted and not yet given back: it may never pass the cap by one byte.
 *
 *   storm fill CAP CHUNK PROCESSES       all take CHUNK until refused; then the cap is full
 *   storm churn CAP PROCESSES THREADS OPERATIONS
 *   storm kill CAP PROCESSES KILLS       processes that churn are killed at random moments
 *   storm fork DEPTH                     every process of a tree takes and forks, nobody gives back
 *   storm short COUNT                    so many programs start, take a page and end, eight at once
 *   storm page                           one of those
 */

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ledger.h"

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "storm: " __VA_ARGS__);                                                \
            fprintf(stderr, "\n");                                                                 \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

enum { HELD_AT_ONCE = 32 };

static struct witness {
    uint64_t granted_bytes;
    uint64_t grants;
    uint64_t refusals;
    uint64_t finished; /* processes that take no more */
} *witness;

static uint64_t cap_bytes;

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static bool take(uint64_t bytes)
{
    if (!ledger_reserve(0, bytes)) {
        __atomic_add_fetch(&witness->refusals, 1, __ATOMIC_RELAXED);
        return false;
    }
    uint64_t granted = __atomic_add_fetch(&witness->granted_bytes, bytes, __ATOMIC_SEQ_CST);
    CHECK(granted <= cap_bytes, "%" PRIu64 " bytes are granted under a cap of %" PRIu64, granted,
          cap_bytes);
    __atomic_add_fetch(&witness->grants, 1, __ATOMIC_RELAXED);
    return true;
}

static void give(uint64_t bytes)
{
    __atomic_sub_fetch(&witness->granted_bytes, bytes, __ATOMIC_SEQ_CST);
    ledger_release(0, bytes);
}

/* The account's answer once it has had time to notice who is dead. */
static void expect_used(uint64_t bytes)
{
    uint64_t used = UINT64_MAX;
    for (int attempt = 0; attempt < 3000 && used != bytes; attempt++) {
        used = ledger_used(0);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    CHECK(used == bytes, "%" PRIu64 " bytes are booked, %" PRIu64 " are held", used, bytes);
}

static void reap(int processes)
{
    for (int i = 0; i < processes; i++) {
        int status = 0;
        CHECK(wait(&status) > 0, "a process is missing");
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a process ended with %d", status);
    }
}

/* --- fill ---------------------------------------------------------------------------------- */

static void fill(uint64_t chunk, int processes)
{
    int gate[2];
    int keep[2];
    CHECK(pipe(gate) == 0 && pipe(keep) == 0, "no pipes");
    for (int i = 0; i < processes; i++)
        if (fork() == 0) {
            char go;
            close(gate[1]);
            close(keep[1]);
            CHECK(ledger_ready(), "not ready");
            CHECK(read(gate[0], &go, 1) == 0, "no gate");
            while (take(chunk)) {
            }
            /* Refused while others were refused, too: what fits must be had by asking again. */
            while (__atomic_load_n(&witness->granted_bytes, __ATOMIC_SEQ_CST) + chunk <= cap_bytes)
                take(chunk);
            __atomic_add_fetch(&witness->finished, 1, __ATOMIC_SEQ_CST);
            CHECK(read(keep[0], &go, 1) == 0, "no end"); /* keeps it until everybody is done */
            _exit(0);
        }
    close(gate[1]);
    uint64_t wanted = cap_bytes / chunk * chunk;
    /* Nobody may end before: what the dead held is handed out again, and no witness counts that. */
    for (int i = 0; i < 60000; i++) {
        if (__atomic_load_n(&witness->finished, __ATOMIC_SEQ_CST) == (uint64_t)processes)
            break;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    CHECK(witness->finished == (uint64_t)processes, "not all processes were refused in the end");
    CHECK(witness->granted_bytes == wanted, "only %" PRIu64 " of %" PRIu64 " bytes were granted",
          witness->granted_bytes, wanted);
    expect_used(wanted);
    CHECK(!ledger_reserve(0, cap_bytes - wanted + 1), "one byte too much was granted");
    close(keep[1]);
    reap(processes);
    expect_used(0);
}

/* --- churn --------------------------------------------------------------------------------- */

struct churner {
    uint64_t seed;
    uint64_t operations;
};

static void *churn(void *argument)
{
    struct churner *churner = argument;
    uint64_t held[HELD_AT_ONCE];
    unsigned count = 0;
    for (uint64_t i = 0; i < churner->operations; i++) {
        uint64_t draw = next_random(&churner->seed);
        if (count < HELD_AT_ONCE && (draw & 1)) {
            uint64_t bytes = 1 + draw % (cap_bytes / 8);
            if (take(bytes))
                held[count++] = bytes;
        } else if (count > 0) {
            give(held[--count]);
        }
    }
    while (count > 0)
        give(held[--count]);
    return NULL;
}

static void churn_threads(uint64_t seed, int threads, uint64_t operations)
{
    pthread_t ids[64];
    struct churner churners[64];
    for (int i = 0; i < threads; i++) {
        churners[i] = (struct churner){seed * 64 + (uint64_t)i + 1, operations};
        CHECK(pthread_create(&ids[i], NULL, churn, &churners[i]) == 0, "no thread");
    }
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    CHECK(ledger_held(0) == 0, "%" PRIu64 " bytes were not given back", ledger_held(0));
}

static void churn_processes(int processes, int threads, uint64_t operations)
{
    for (int i = 0; i < processes; i++)
        if (fork() == 0) {
            churn_threads((uint64_t)i + 1, threads, operations);
            _exit(0);
        }
    reap(processes);
    CHECK(witness->granted_bytes == 0, "the witness is wrong");
    CHECK(witness->grants > 0 && witness->refusals > 0, "the cap was never reached");
    expect_used(0);
}

/* --- kill ---------------------------------------------------------------------------------- */

static pid_t start_victim(uint64_t seed)
{
    pid_t parent = getpid();
    pid_t child = fork();
    if (child != 0)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    /* Its memory ends with it, and only the account is told how: so no witness here. */
    for (;;) {
        uint64_t bytes = 1 + next_random(&seed) % (cap_bytes / 4);
        bool granted = ledger_reserve(0, bytes);
        if (granted && (seed & 3))
            ledger_release(0, bytes);
        if (ledger_held(0) > cap_bytes)
            _exit(1);
        if (seed % 64 == 0)
            ledger_release(0, ledger_held(0));
    }
}

static void kill_processes(int processes, int kills)
{
    pid_t victims[64];
    uint64_t seed = 20260101;
    for (int i = 0; i < processes; i++)
        victims[i] = start_victim(next_random(&seed));
    for (int i = 0; i < kills; i++) {
        int which = (int)(next_random(&seed) % (uint64_t)processes);
        nanosleep(&(struct timespec){.tv_nsec = (long)(next_random(&seed) % 500000)}, NULL);
        kill(victims[which], SIGKILL);
        int status = 0;
        waitpid(victims[which], &status, 0);
        CHECK(WIFSIGNALED(status), "a process ended by itself with %d", status);
        victims[which] = start_victim(next_random(&seed));
    }
    /* Left as zombies: dead is dead, whether or not anybody has asked for the exit code. */
    for (int i = 0; i < processes; i++)
        kill(victims[i], SIGKILL);
    expect_used(0);
    CHECK(ledger_reserve(0, cap_bytes), "what the dead held is not there");
    ledger_release(0, cap_bytes);
    for (int i = 0; i < processes; i++)
        waitpid(victims[i], NULL, 0);
}

/* --- fork ---------------------------------------------------------------------------------- */

static void grow(int depth)
{
    CHECK(ledger_held(0) == 0, "a child inherited %" PRIu64 " bytes", ledger_held(0));
    CHECK(ledger_reserve(0, 4096), "refused 4096 bytes");
    CHECK(ledger_held(0) == 4096, "a child holds %" PRIu64 " bytes", ledger_held(0));
    for (int i = 0; i < 2 && depth > 0; i++)
        if (fork() == 0) {
            grow(depth - 1);
            _exit(0); /* without giving back */
        }
    reap(depth > 0 ? 2 : 0);
}

static void fork_tree(int depth)
{
    if (fork() == 0) {
        grow(depth);
        _exit(0);
    }
    reap(1);
    expect_used(0);
}

/* --- short --------------------------------------------------------------------------------- */

static void start_short(char *program)
{
    if (fork() == 0) {
        execl(program, program, "page", "0", (char *)NULL);
        _exit(1);
    }
}

static void short_programs(char *program, int count)
{
    for (int i = 0; i < count; i++) {
        start_short(program);
        if (i >= 8)
            reap(1);
    }
    reap(count < 8 ? count : 8);
    expect_used(0);
}

int main(int count, char **words)
{
    witness =
        mmap(NULL, sizeof *witness, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(witness != MAP_FAILED, "no memory");
    CHECK(count >= 3, "what shall I do?");
    CHECK(ledger_ready(), "not ready");
    cap_bytes = strtoull(words[2], NULL, 0);
    if (strcmp(words[1], "fill") == 0 && count == 5)
        fill(strtoull(words[3], NULL, 0), atoi(words[4]));
    else if (strcmp(words[1], "churn") == 0 && count == 6)
        churn_processes(atoi(words[3]), atoi(words[4]), strtoull(words[5], NULL, 0));
    else if (strcmp(words[1], "kill") == 0 && count == 5)
        kill_processes(atoi(words[3]), atoi(words[4]));
    else if (strcmp(words[1], "fork") == 0 && count == 3)
        fork_tree((int)cap_bytes);
    else if (strcmp(words[1], "short") == 0)
        short_programs(words[0], (int)cap_bytes);
    else if (strcmp(words[1], "page") == 0)
        CHECK(ledger_reserve(0, 4096), "refused 4096 bytes");
    else
        CHECK(false, "what is %s?", words[1]);
    return 0;
}
