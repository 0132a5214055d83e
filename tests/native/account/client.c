/* A process of the account that does as it is told: one line in, one line out. */

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger.h"

static const char *program;

/* A child books for itself: what it inherits is nothing, and what it takes is seen by the parent.
 */
static void in_child(unsigned device, uint64_t bytes)
{
    int pipes[2];
    if (pipe(pipes) != 0)
        exit(3);
    pid_t child = fork();
    if (child == 0) {
        uint64_t inherited = ledger_held(device);
        ledger_release(device, bytes); /* of the parent's: must change nothing */
        bool granted = ledger_reserve(device, bytes);
        dprintf(pipes[1], "%" PRIu64 " %d %" PRIu64 "\n", inherited, granted, ledger_used(device));
        _exit(0);
    }
    char answer[128] = "";
    ssize_t length = read(pipes[0], answer, sizeof answer - 1);
    (void)length;
    close(pipes[0]);
    close(pipes[1]);
    waitpid(child, NULL, 0);
    fputs(answer, stdout);
}

/* The program's own handler for SIGBUS, and a fault of the program's own. */
static volatile sig_atomic_t own_faults;
static void *own_page;

static void on_own_fault(int number)
{
    (void)number;
    own_faults++;
    mmap(own_page, 4096, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void fault_past_own_file(void)
{
    FILE *empty = tmpfile();
    own_page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fileno(empty), 0);
    int value = *(volatile char *)own_page;
    munmap(own_page, 4096);
    fclose(empty);
    printf("%d %d\n", (int)own_faults, value);
}

static void find(const char *hex)
{
    uint8_t uuid[16];
    for (int i = 0; i < 16; i++)
        sscanf(hex + 2 * i, "%2hhx", &uuid[i]);
    printf("%d\n", ledger_find(uuid));
}

static _Noreturn void *serve(void *nothing);

/* The kernel shows a process whose first thread has ended as a zombie, though it lives. */
static void leave_main_thread(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, serve, NULL) != 0)
        exit(3);
    printf("1\n");
    pthread_exit(NULL);
}

static void obey(const char *order, unsigned device, uint64_t bytes, const char *word)
{
    if (strcmp(order, "ready") == 0)
        printf("%d\n", ledger_ready());
    else if (strcmp(order, "devices") == 0)
        printf("%u\n", ledger_devices());
    else if (strcmp(order, "find") == 0)
        find(word);
    else if (strcmp(order, "reserve") == 0)
        printf("%d\n", ledger_reserve(device, bytes));
    else if (strcmp(order, "release") == 0)
        printf("%d\n", (ledger_release(device, bytes), 1));
    else if (strcmp(order, "force") == 0)
        printf("%d\n", (ledger_force(device, bytes), 1));
    else if (strcmp(order, "used") == 0)
        printf("%" PRIu64 "\n", ledger_used(device));
    else if (strcmp(order, "limit") == 0)
        printf("%" PRIu64 "\n", ledger_limit(device));
    else if (strcmp(order, "held") == 0)
        printf("%" PRIu64 "\n", ledger_held(device));
    else if (strcmp(order, "knows") == 0)
        printf("%d\n", ledger_knows_pid((int32_t)device));
    else if (strcmp(order, "fork") == 0)
        in_child(device, bytes);
    else if (strcmp(order, "exec") == 0) {
        /* Answered before, so that no further order is read by the program that ends here. */
        printf("1\n");
        execl(program, program, (char *)NULL);
    } else if (strcmp(order, "handle-sigbus") == 0)
        printf("%d\n", signal(SIGBUS, on_own_fault) != SIG_ERR);
    else if (strcmp(order, "own-fault") == 0)
        fault_past_own_file();
    else if (strcmp(order, "leave-main-thread") == 0)
        leave_main_thread();
    else
        printf("what is %s?\n", order);
}

static _Noreturn void *serve(void *nothing)
{
    (void)nothing;
    char line[256];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char order[32] = "";
        char word[64] = "";
        unsigned device = 0;
        uint64_t bytes = 0;
        if (sscanf(line, "%31s %63s", order, word) < 1)
            continue;
        sscanf(word, "%u", &device);
        sscanf(line, "%*s %*s %" SCNu64, &bytes);
        obey(order, device, bytes, word);
    }
    exit(0);
}

int main(int count, char **words)
{
    (void)count;
    program = words[0];
    setvbuf(stdout, NULL, _IOLBF, 0);
    serve(NULL);
}
