/* What the worth of nodes is computed from, all of it in arrays that Python owns.
 *
 * Shares and worth are in milli GPU, a GPU's memory is in units of the inventory, a node's CPU in
 * milli and its memory in MiB. cffi reads this file as its cdef: plain declarations only.
 */

/* The cluster: a line of `width` GPUs for each row. A GPU that is not there has the model -1. */
struct worth_nodes {
    int64_t width;
    const int64_t *compute; /* free, as is `memory` */
    const int64_t *memory;
    const int64_t *total; /* the GPU's own memory */
    const int64_t *model;
    const int64_t *cpu; /* of each row, free */
    const int64_t *host_memory;
};

/* What one pod takes from its node, and from each of its GPUs. */
struct worth_share {
    int64_t compute;
    int64_t memory; /* -1: all of the GPU's */
    int64_t cpu;
    int64_t host_memory;
};

/* Values of holes by free compute and free memory in thousandths, for GPUs with so much memory. */
struct worth_holes {
    int64_t total;   /* -1: for any */
    int64_t step;    /* thousandths from one line, and one column, to the next */
    int64_t columns; /* 1: there is one value for the smaller of both */
    const double *value;
};

/* The workload: typical classes of pods, of which each may run on some models. Numbers by class
 * have 32 bits, so that a processor takes four at a time. */
struct worth_lesson {
    int64_t models;
    int64_t classes; /* at least one, but for the holes */
    const double *weight;
    const int32_t *gpus;
    const int32_t *compute; /* on each GPU, as is `memory` */
    const int32_t *memory;
    const int32_t *partial; /* 0: asks for all memory of its GPUs */
    const int32_t *cpu;
    const int32_t *access; /* a line of classes for each model, 0 or 1 */
    double cpu_per_share;
    double memory_per_share;
    const double *dearness; /* of each model: what its holes are multiplied by; NULL: by 1 */
    int64_t hole_kinds;
    const struct worth_holes *holes;
    int64_t block_kinds;
    const int64_t *block_gpus;
    const double *block_weight;
};

/* One question: these rows, and for each a line of marks for its GPUs. */
struct worth_question {
    const struct worth_nodes *nodes;
    const struct worth_lesson *lesson;
    const struct worth_share *share;
    int64_t count;
    const int64_t *rows;
    const bool *marked;
    double *lost;
};

/* What the holes lose in each marked GPU if the share is taken from it; a line for each row. */
void worth_lost_by_holes(const struct worth_question *question);

/* Adds what the node loses besides, if the share is taken from that marked GPU alone. */
void worth_lost_by_each(const struct worth_question *question);

/* The same if it is taken from all marked GPUs together; one number for each row. */
void worth_lost_by_all(const struct worth_question *question);
