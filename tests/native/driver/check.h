/*
 * What the programs that try the simulated driver are made of.
 *
 * A program is a list of cases; each runs in a process of its own, on a node of its own, as
 * `program CASE`. Without a name the program lists its cases. The first check that does not hold
 * ends the case with a line that says where and what.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_abi.h"

struct test_case {
    const char *name;
    void (*run)(void);
    struct test_case *next;
};

void register_case(struct test_case *test_case);
const char *error_name(CUresult error);

#define CASE(title)                                                                                \
    static void title(void);                                                                       \
    __attribute__((constructor)) static void register_##title(void)                                \
    {                                                                                              \
        static struct test_case test_case = {#title, title, NULL};                                 \
        register_case(&test_case);                                                                 \
    }                                                                                              \
    static void title(void)

#define CHECK(claim)                                                                               \
    do {                                                                                           \
        if (!(claim)) {                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #claim);                            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_EQUAL(one, other)                                                                    \
    do {                                                                                           \
        const unsigned long long left = (unsigned long long)(one);                                 \
        const unsigned long long right = (unsigned long long)(other);                              \
        if (left != right) {                                                                       \
            fprintf(stderr, "%s:%d: %s is %llu, %s is %llu\n", __FILE__, __LINE__, #one, left,     \
                    #other, right);                                                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define FAILS(error, call)                                                                         \
    do {                                                                                           \
        const CUresult answer = (call);                                                            \
        if (answer != (error)) {                                                                   \
            fprintf(stderr, "%s:%d: %s answers %s instead of %s\n", __FILE__, __LINE__, #call,     \
                    error_name(answer), error_name(error));                                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define OK(call) FAILS(CUDA_SUCCESS, call)

enum { KIB = 1 << 10, MIB = 1 << 20, BLOCK = 2 << 20 };
#define GIB ((size_t)1 << 30)

/* The current context of device 0, new. */
CUcontext fresh_context(void);

/* What the device of the current context has free. */
size_t free_bytes(void);

/* Bytes that differ from each other and from those of another seed. */
void paint(void *bytes, size_t count, unsigned seed);
bool is_painted(const void *bytes, size_t count, unsigned seed);

/* Runs `child` in a process of its own, which must succeed. */
void in_child(void (*child)(void *), void *argument);

/* The same, beside this process: start it, talk over its sockets, and wait for its success. */
struct partner {
    int process;
    int socket;
};

struct partner start_partner(void (*run)(int socket));
void await_partner(struct partner partner);
void send_all(int socket, const void *bytes, size_t count);
void receive_all(int socket, void *bytes, size_t count);
void send_file(int socket, int file);
int receive_file(int socket);
