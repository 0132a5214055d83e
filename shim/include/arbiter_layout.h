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
    uint32_t counters_at; /* where the device's counters are in the usage file */
    uint32_t reserved;
    struct limits_ratio ratios[LIMITS_RATIOS];

    /* The arbiter's own. */
    uint64_t read_ns; /* when the counters were last read */
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
    uint64_t contended_ns; /* when another container was last seen on the GPU */
    uint32_t was_contended;
    uint32_t padding;
};

/* Divides one GPU. Pure: the same claims always give the same grants. */
void arbiter_decide(struct arbiter_claim *claims, uint32_t count);

/*
 * One tick over all seats; answers how many limits were written. Wants calling every 10 to 20 ms;
 * grants outlive the last call by `lifetime_ns`.
 */
uint32_t arbiter_tick(struct arbiter_seat *seats, uint32_t count, uint64_t now_ns,
                      uint64_t lifetime_ns);

/* Takes all grants back at once: every container falls to its guaranteed share. */
void arbiter_withdraw(struct arbiter_seat *seats, uint32_t count);
