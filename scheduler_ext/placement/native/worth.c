/* What the free part of a node is worth to the workload that was learned.
 *
 * A node loses what is free on it and of no use to typical pods, what its CPU and memory do not
 * suffice for, and the worth of blocks of free GPUs. docs/placement.md says why. One placement
 * makes some ten nodes worth computing anew: too few for arrays, too many for Python.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "worth_layout.h"

/* One setting for all clusters; docs/placement.md says how flat the results are around it. */
#define STRANDED_SCALE_MILLI 4000.0
#define BLOCK_WEIGHT 0.5
#define GATHER_WEIGHT 2.0

#define WHOLE_MILLI 1000
#define TINY 1e-9

struct gpu {
    int64_t compute;
    int64_t memory;
    int64_t total;
    int64_t model;
};

/* A node as the sum of its GPUs. What is counted by class lies in arrays of the caller. */
struct node {
    int32_t *able;  /* by class: how many GPUs could carry one of its shares */
    double *usable; /* by class: what is free on these */
    double scale;   /* weight of the classes that may run here at all: others do not miss it */
    double free;
    int64_t gpus;
    int64_t wholly_free;
    int64_t cpu;
    int64_t host_memory;
};

static struct gpu gpu_at(const struct worth_nodes *nodes, int64_t row, int64_t device)
{
    int64_t at = row * nodes->width + device;
    return (struct gpu){
        .compute = nodes->compute[at],
        .memory = nodes->memory[at],
        .total = nodes->total[at],
        .model = nodes->model[at],
    };
}

static struct gpu without(struct gpu gpu, const struct worth_share *share)
{
    gpu.compute -= share->compute;
    gpu.memory -= share->memory < 0 ? gpu.total : share->memory;
    return gpu;
}

static bool are_alike(struct gpu one, struct gpu other)
{
    return one.compute == other.compute && one.memory == other.memory && one.total == other.total &&
           one.model == other.model;
}

static double memory_milli(struct gpu gpu)
{
    return gpu.total > 0 ? (double)gpu.memory * WHOLE_MILLI / (double)gpu.total : 0.0;
}

static double share_of(struct gpu gpu)
{
    return ((double)gpu.compute + memory_milli(gpu)) / 2;
}

static bool is_wholly_free(struct gpu gpu)
{
    return gpu.total > 0 && gpu.compute == WHOLE_MILLI && gpu.memory == gpu.total;
}

/* There, and of a model that was there when the lesson was drawn. */
static bool is_known(const struct worth_lesson *lesson, struct gpu gpu)
{
    return gpu.model >= 0 && gpu.model < lesson->models;
}

static int32_t clipped(int64_t amount)
{
    return amount > INT32_MAX ? INT32_MAX : amount < INT32_MIN ? INT32_MIN : (int32_t)amount;
}

/* By class, 0 or 1: whether the GPU could carry one of its shares. This is where time is spent, so
 * there are no branches, which no processor could foretell here. */
static void find_able(const struct worth_lesson *lesson, struct gpu gpu, int32_t *restrict able)
{
    const int32_t *compute = lesson->compute, *memory = lesson->memory, *partial = lesson->partial;
    const int32_t *access = lesson->access + gpu.model * lesson->classes;
    int32_t free_compute = clipped(gpu.compute), free_memory = clipped(gpu.memory);
    int32_t has_all = gpu.memory == gpu.total;
    for (int64_t type = 0; type < lesson->classes; type++)
        able[type] = (free_compute >= compute[type]) & (free_memory >= memory[type]) &
                     (has_all | partial[type]) & access[type];
}

static const struct worth_holes *holes_for(const struct worth_lesson *lesson, struct gpu gpu)
{
    for (int64_t kind = 0; kind < lesson->hole_kinds; kind++) {
        const struct worth_holes *holes = &lesson->holes[kind];
        if (holes->total == gpu.total || holes->total < 0)
            return holes;
    }
    return NULL;
}

/* Rounded down: what is not there has no value. The tiny lift keeps whole numbers that went through
 * a division from falling below themselves. */
static int64_t step_of(double milli, const struct worth_holes *holes)
{
    int64_t whole = milli <= 0 ? 0 : milli >= WHOLE_MILLI ? WHOLE_MILLI : (int64_t)(milli + 1e-6);
    return whole / holes->step;
}

static double value_of_hole(const struct worth_holes *holes, struct gpu gpu)
{
    int64_t compute = step_of((double)gpu.compute, holes);
    int64_t memory = step_of(memory_milli(gpu), holes);
    if (holes->columns == 1)
        return holes->value[compute < memory ? compute : memory];
    return holes->value[compute * holes->columns + memory];
}

void worth_lost_by_holes(const struct worth_question *question)
{
    const struct worth_nodes *nodes = question->nodes;
    for (int64_t number = 0; number < question->count; number++) {
        for (int64_t device = 0; device < nodes->width; device++) {
            int64_t at = number * nodes->width + device;
            question->lost[at] = 0;
            if (!question->marked[at])
                continue;
            struct gpu gpu = gpu_at(nodes, question->rows[number], device);
            const struct worth_holes *holes = holes_for(question->lesson, gpu);
            if (holes == NULL || !is_known(question->lesson, gpu))
                continue;
            double lost =
                value_of_hole(holes, gpu) - value_of_hole(holes, without(gpu, question->share));
            const double *dearness = question->lesson->dearness;
            question->lost[at] = dearness != NULL ? lost * dearness[gpu.model] : lost;
        }
    }
}

/* The node of a row as it is, or as it would be if the share were taken from the marked GPUs. Of
 * each GPU a line in `able_gpus` says for which classes it would do. */
static void sum_up(const struct worth_question *question, int64_t number,
                   const struct worth_share *taken, struct node *node, int32_t *restrict able_gpus)
{
    const struct worth_nodes *nodes = question->nodes;
    const struct worth_lesson *lesson = question->lesson;
    int64_t row = question->rows[number], classes = lesson->classes;
    int32_t *restrict count = node->able, may_run[classes];
    double *restrict usable = node->usable;
    node->free = 0;
    node->gpus = node->wholly_free = 0;
    node->cpu = nodes->cpu[row] - (taken != NULL ? taken->cpu : 0);
    node->host_memory = nodes->host_memory[row] - (taken != NULL ? taken->host_memory : 0);
    for (int64_t type = 0; type < classes; type++) {
        usable[type] = 0;
        count[type] = may_run[type] = 0;
    }
    for (int64_t device = 0; device < nodes->width; device++) {
        struct gpu gpu = gpu_at(nodes, row, device);
        if (!is_known(lesson, gpu))
            continue;
        if (taken != NULL && question->marked[number * nodes->width + device])
            gpu = without(gpu, taken);
        double share = share_of(gpu);
        node->gpus++;
        node->free += share;
        node->wholly_free += is_wholly_free(gpu);
        int32_t *restrict able = able_gpus + device * classes;
        const int32_t *access = lesson->access + gpu.model * classes;
        find_able(lesson, gpu, able);
        for (int64_t type = 0; type < classes; type++) {
            may_run[type] |= access[type];
            count[type] += able[type];
            usable[type] += able[type] * share;
        }
    }
    double scale = 0;
    for (int64_t type = 0; type < classes; type++)
        scale += may_run[type] * lesson->weight[type];
    node->scale = scale > TINY ? scale : TINY;
}

static double ratio(int64_t amount, double per_share)
{
    return (double)amount / (per_share > TINY ? per_share : TINY);
}

/* Squared: shortage spread thinly over many nodes is better than a few nodes without use. */
static double stranded(const struct worth_lesson *lesson, const struct node *node)
{
    double by_cpu = ratio(node->cpu, lesson->cpu_per_share);
    double by_memory = ratio(node->host_memory, lesson->memory_per_share);
    double without_use = node->free - (by_cpu < by_memory ? by_cpu : by_memory);
    return without_use > 0 ? without_use * without_use / (2 * STRANDED_SCALE_MILLI) : 0;
}

/* Whole blocks, and more for each free GPU the nearer the node is to its next block. Without the
 * second part free GPUs lie scattered, one or two on many nodes, and no node ever becomes free
 * enough for a pod that needs several, however much is free in all. */
static double blocks(const struct worth_lesson *lesson, const struct node *node)
{
    double worth = 0;
    for (int64_t kind = 0; kind < lesson->block_kinds; kind++) {
        int64_t gpus = lesson->block_gpus[kind];
        int64_t whole = node->wholly_free / gpus;
        double begun = 0;
        if ((whole + 1) * gpus <= node->gpus)
            begun = (double)(node->wholly_free % gpus) / (double)gpus;
        worth += lesson->block_weight[kind] *
                 ((BLOCK_WEIGHT + GATHER_WEIGHT) * (double)whole + GATHER_WEIGHT * begun * begun);
    }
    return worth;
}

/* `part` has what each class could use, weighed. */
static double loss_of(const struct worth_lesson *lesson, const struct node *node,
                      const double *restrict part)
{
    double use = 0;
    for (int64_t type = 0; type < lesson->classes; type++)
        use += part[type];
    return node->free - use / node->scale + stranded(lesson, node) - blocks(lesson, node);
}

static double loss_as_it_is(const struct worth_lesson *lesson, const struct node *node)
{
    const int32_t *gpus = lesson->gpus, *cpu = lesson->cpu, *restrict able = node->able;
    const double *weight = lesson->weight, *restrict usable = node->usable;
    double part[lesson->classes];
    int32_t free_cpu = clipped(node->cpu);
    for (int64_t type = 0; type < lesson->classes; type++) {
        int32_t runs = (able[type] >= gpus[type]) & (free_cpu >= cpu[type]);
        part[type] = runs * weight[type] * usable[type];
    }
    return loss_of(lesson, node, part);
}

/* Only one GPU differs from the node as it was, so that its part is exchanged instead of summing up
 * all GPUs anew. */
static double loss_without(const struct worth_lesson *lesson, const struct node *before,
                           struct gpu was, const int32_t *restrict could,
                           const struct worth_share *share)
{
    struct gpu is = without(was, share);
    double share_before = share_of(was), share_now = share_of(is);
    struct node node = *before;
    node.free += share_now - share_before;
    node.wholly_free += is_wholly_free(is) - is_wholly_free(was);
    node.cpu -= share->cpu;
    node.host_memory -= share->host_memory;
    const int32_t *gpus = lesson->gpus, *cpu = lesson->cpu, *restrict able = node.able;
    const double *weight = lesson->weight, *restrict usable = node.usable;
    int32_t can[lesson->classes], free_cpu = clipped(node.cpu);
    double part[lesson->classes];
    find_able(lesson, is, can);
    for (int64_t type = 0; type < lesson->classes; type++) {
        int32_t now_able = able[type] - could[type] + can[type];
        int32_t runs = (now_able >= gpus[type]) & (free_cpu >= cpu[type]);
        double now_usable = usable[type] - could[type] * share_before + can[type] * share_now;
        part[type] = runs * weight[type] * now_usable;
    }
    return loss_of(lesson, &node, part);
}

void worth_lost_by_each(const struct worth_question *question)
{
    const struct worth_nodes *nodes = question->nodes;
    const struct worth_lesson *lesson = question->lesson;
    int64_t width = nodes->width;
    int32_t able[lesson->classes], able_gpus[width * lesson->classes];
    double usable[lesson->classes], lost[width];
    struct gpu gpus[width];
    for (int64_t number = 0; number < question->count; number++) {
        const bool *marked = question->marked + number * width;
        struct node node = {.usable = usable, .able = able};
        sum_up(question, number, NULL, &node, able_gpus);
        double before = loss_as_it_is(lesson, &node);
        for (int64_t device = 0; device < width; device++) {
            gpus[device] = gpu_at(nodes, question->rows[number], device);
            if (!marked[device] || !is_known(lesson, gpus[device]))
                continue;
            /* GPUs in the same state cost the same. */
            int64_t twin = 0;
            while (twin < device && !(marked[twin] && are_alike(gpus[twin], gpus[device])))
                twin++;
            if (twin == device)
                lost[device] = loss_without(lesson, &node, gpus[device],
                                            able_gpus + device * lesson->classes, question->share) -
                               before;
            else
                lost[device] = lost[twin];
            question->lost[number * width + device] += lost[device];
        }
    }
}

void worth_lost_by_all(const struct worth_question *question)
{
    const struct worth_lesson *lesson = question->lesson;
    int32_t able[lesson->classes], able_gpus[question->nodes->width * lesson->classes];
    double usable[lesson->classes];
    for (int64_t number = 0; number < question->count; number++) {
        struct node node = {.usable = usable, .able = able};
        sum_up(question, number, NULL, &node, able_gpus);
        double before = loss_as_it_is(lesson, &node);
        sum_up(question, number, question->share, &node, able_gpus);
        question->lost[number] = loss_as_it_is(lesson, &node) - before;
    }
}
