/* Random clusters and lessons, numbers that no cluster has among them, in arrays that are just as
 * long as they have to be: the sanitizers see every look past an end. */

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "worth_layout.h"

static int64_t below(int64_t end)
{
    return (int64_t)((uint64_t)random() % (uint64_t)end);
}

static int64_t *numbers(int64_t count, int64_t least, int64_t end)
{
    int64_t *made = malloc((size_t)count * sizeof *made);
    for (int64_t i = 0; i < count; i++)
        made[i] = least + below(end - least);
    return made;
}

static int32_t *small(int64_t count, int32_t least, int32_t end)
{
    int32_t *made = malloc((size_t)count * sizeof *made);
    for (int64_t i = 0; i < count; i++)
        made[i] = least + (int32_t)below(end - least);
    return made;
}

static double *parts(int64_t count)
{
    double *made = malloc((size_t)count * sizeof *made);
    for (int64_t i = 0; i < count; i++)
        made[i] = (double)below(1000) / 1000;
    return made;
}

static void expect_numbers(const double *lost, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(lost[i]))
            abort();
}

static void try_one(void)
{
    int64_t rows = 1 + below(5), width = 1 + below(16), cells = rows * width;
    int64_t models = 1 + below(3), classes = 1 + below(40), asked = below(rows + 1),
            kinds = below(3);
    int64_t *blocks = numbers(kinds, 1, 9);
    double *dearness = below(2) ? parts(models) : NULL;
    struct worth_nodes nodes = {
        .width = width,
        .compute = numbers(cells, -100, 1200),
        .memory = numbers(cells, -100, 1200),
        .total = numbers(cells, 0, 1000),
        .model = numbers(cells, -1, models + 2),
        .cpu = numbers(rows, -10, 1000),
        .host_memory = numbers(rows, INT64_MIN / 2, INT64_MAX / 2),
    };
    struct worth_holes holes[2] = {
        {.total = below(1000), .step = 1, .columns = 1, .value = parts(1001)},
        {.total = -1, .step = 5, .columns = 201, .value = parts(201 * 201)},
    };
    struct worth_lesson lesson = {
        .models = models,
        .classes = classes,
        .weight = parts(classes),
        .gpus = small(classes, 0, 9),
        .compute = small(classes, 0, 1001),
        .memory = small(classes, 0, INT32_MAX),
        .partial = small(classes, 0, 2),
        .cpu = small(classes, 0, INT32_MAX),
        .access = small(models * classes, 0, 2),
        .cpu_per_share = (double)below(3),
        .memory_per_share = (double)below(3),
        .dearness = dearness,
        .hole_kinds = 1 + below(2),
        .holes = holes,
        .block_kinds = kinds,
        .block_gpus = blocks,
        .block_weight = parts(kinds),
    };
    struct worth_share share = {below(1001), below(1200) - 1, below(100), below(INT64_MAX)};
    int64_t *chosen = numbers(asked, 0, rows);
    bool *marked = malloc((size_t)(asked * width));
    for (int64_t i = 0; i < asked * width; i++)
        marked[i] = below(2);
    double *lost = parts(asked * width), *together = parts(asked);
    struct worth_question question = {&nodes, &lesson, &share, asked, chosen, marked, lost};
    worth_lost_by_holes(&question);
    worth_lost_by_each(&question);
    expect_numbers(lost, asked * width);
    question.lost = together;
    worth_lost_by_all(&question);
    expect_numbers(together, asked);
    const void *all[] = {
        nodes.compute,  nodes.memory,      nodes.total,    nodes.model,   nodes.cpu,
        lesson.weight,  lesson.gpus,       lesson.compute, lesson.memory, lesson.partial,
        lesson.cpu,     lesson.access,     dearness,       blocks,        lesson.block_weight,
        holes[0].value, holes[1].value,    chosen,         marked,        lost,
        together,       nodes.host_memory,
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free((void *)(uintptr_t)all[i]);
}

int main(int argc, char **argv)
{
    srandom(1);
    for (int left = argc > 1 ? atoi(argv[1]) : 0; left > 0; left--)
        try_one();
    puts("kept");
    return 0;
}
