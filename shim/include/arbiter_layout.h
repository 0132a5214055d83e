/*
 * The arbiter: divides each GPU's time between the containers that share it.
 *
 * A *seat* is one container on one GPU. A tick reads what all seats report, decides what each may
 * use until the next decision, and writes that into the containers' limits with a deadline. When
 * nobody arbitrates any more, deadlines pass and every container is left with its guaranteed share.
 *
 * cffi reads this file as its cdef after limits_layout.h and usage_layout.h, so it holds plain
 * declarations only. Shares are in hundredths of a percent, as in the limits.
 */

/* What the decision needs of one container, and what comes out. */
struct arbiter_claim {
    uint32_t share;  /* guaranteed */
    uint32_t policy; /* enum limits_policy */
    uint32_t weight; /* among borrowers */
    uint32_t demand; /* time for which it has work on the GPU, running or waiting */
    uint32_t held;   /* launches were held for lack of budget: it wants more than it has */
    uint32_t grant;  /* the answer */
};

struct arbiter_seat {
    /* Filled in by whoever seats the container. */
    int32_t usage_fd;
    int32_t limits_fd;
    void *limits; /* the limits file, mapped */
    uint64_t limits_bytes;
    uint32_t device;      /* of the container's devices, which one */
    uint32_t gpu;         /* seats of one GPU have the same number, and stand side by side */
    uint32_t counters_at; /* where the device's counters are in the usage file ... */
    uint32_t owners_at;   /* ... the owners of its slots ... */
    uint32_t busy_at;     /* ... and the GPU time charged in each slot */
    uint32_t slot_count;
    struct limits_ratio ratios[LIMITS_RATIOS];

    /* The arbiter's own. */
    const uint64_t *watch; /* a word of the limits that changes with them, and its last value */
    uint64_t watched;
    uint32_t share; /* as the limits last said it */
    uint32_t policy;
    uint32_t weight;
    uint32_t has_terms; /* they said something of this device */
    uint64_t read_ns;   /* when the counters were last read */
    uint64_t occupied_ns;
    uint64_t busy_ns;
    uint64_t began_ns;  /* when it became active after having been idle */
    uint64_t active_ns; /* as reported */
    uint64_t wanted_ns;
    uint32_t demand;     /* smoothed */
    uint32_t is_lost;    /* its files cannot be read any more */
    uint64_t written_ns; /* when its limits were last written */
    uint32_t written_grant;
    uint32_t is_dirty;     /* the ratios have changed */
    uint64_t contended_ns; /* when another container was last seen on the GPU; 0: none is */
};

/* What one process of a container has been charged. */
struct arbiter_charge {
    uint32_t slot;         /* in the usage file */
    int32_t pid;           /* in its own pid namespace */
    uint32_t namespace_id; /* which one that is, as the usage file says it */
    uint32_t reserved;
    uint64_t busy_ns;
};

/* Divides one GPU. Pure: the same claims always give the same grants. */
void arbiter_decide(struct arbiter_claim *claims, uint32_t count);

/* What goes on, as arbiter_tick answers it: how soon something may have to be decided. */
enum arbiter_pace {
    ARBITER_IDLE = 0,    /* nobody uses a GPU */
    ARBITER_BUSY = 1,    /* somebody does ... */
    ARBITER_LENDING = 2, /* ... with time of others, who may want it back */
};

/*
 * One tick over all seats; answers the pace. Grants outlive it by `lifetime_ns`.
 */
uint32_t arbiter_tick(struct arbiter_seat *seats, uint32_t count, uint64_t now_ns,
                      uint64_t lifetime_ns);

/*
 * Ticks for so long: often while time is lent, so that a lender is back at its share a few ticks
 * after it returns, and rarely while not. Answers the pace of the last tick.
 */
uint32_t arbiter_run(struct arbiter_seat *seats, uint32_t count, uint64_t duration_ns,
                     uint64_t lifetime_ns);

/* Reads what the processes of a seat were charged; answers how many there are, `most` at most. */
uint32_t arbiter_charges(const struct arbiter_seat *seat, struct arbiter_charge *charges,
                         uint32_t most);

/* Takes all grants back at once: every container falls to its guaranteed share. */
void arbiter_withdraw(struct arbiter_seat *seats, uint32_t count);
