/*
 * What Python needs beyond core.h: making a node, looking at it from outside, injecting faults.
 *
 * cffi reads this file as its cdef after state_layout.h: plain declarations only. All functions
 * work for an observer, which takes none of the process slots.
 */

/* A fault that stays until it is cleared. */
enum { SIM_FAULT_STAYS = 0x7fffffff };

struct sim_options {
    char driver_version[32];
    uint32_t cuda_version;
    uint32_t null_mode;
    uint32_t hide_idle;
    uint32_t nvml_delay_us;
};

/* One device at one moment of its timeline. */
struct sim_device_reading {
    uint64_t time_ns;
    uint64_t idle_ns;
    uint64_t used_bytes;
    uint64_t gone_busy_ns; /* of processes that are gone */
    uint64_t gone_launches;
    uint64_t xid_count;
    uint64_t ecc_errors;
    uint64_t last_xid;
    uint32_t lost;
    uint32_t utilization_percent;
    struct {
        uint64_t used_bytes;
        uint64_t active_ns;
        uint64_t horizon_ns;
        uint64_t launches;
        uint32_t generation; /* whose numbers these are, if the slot has changed hands since */
        uint32_t reserved;
    } usages[SIM_PROCESSES];
};

struct sim_process_reading {
    int32_t pid; /* 0: nobody */
    uint32_t generation;
    uint64_t pid_namespace;
    uint64_t start_ticks;
    char name[64];
};

/* Makes a node, whole or not at all, in place of whatever is at `path`. */
int sim_make(const char *path, const struct sim_profile *profiles, unsigned count,
             const struct sim_options *options);

/* Maps a node to look at it; NULL and a sentence in `why` if there is none that we can use. */
struct sim_state *sim_open(const char *path, char *why, size_t why_bytes);
void sim_close(struct sim_state *state);

void sim_settle(struct sim_state *state);
int sim_read_device(struct sim_state *state, unsigned device, struct sim_device_reading *reading);
int sim_read_process(struct sim_state *state, unsigned slot, struct sim_process_reading *reading);

/* A fault for the next `uses` calls of a kind (enum sim_call). -ENOSPC: too many wait already. */
int sim_inject(struct sim_state *state, unsigned device, uint32_t call, int32_t error,
               uint64_t uses, uint64_t delay_ns);
int sim_post_xid(struct sim_state *state, unsigned device, uint64_t xid, uint64_t ecc_errors);
int sim_lose(struct sim_state *state, unsigned device);  /* it falls off the bus */
int sim_clear(struct sim_state *state, unsigned device); /* no fault waits, and it is back */
