/*
 * What the processes of a simulated node share: one file, mapped by every process.
 *
 * cffi reads this file as its cdef, so it holds plain declarations only: no directives, no inline
 * code. C includes core.h. Changing anything below means raising SIM_LAYOUT: a file of another
 * layout is refused.
 */

enum {
    SIM_LAYOUT = 1,
    SIM_DEVICES = 16,
    SIM_PROCESSES = 256,
    SIM_OBSERVERS = 1024,      /* readers at one time: they take locks but are no processes */
    SIM_SLICE_NS = 2000000,    /* a turn of one process when several want the GPU */
    SIM_WINDOW_NS = 166666667, /* NVML's sampling window: six a second */
    SIM_SLICES = 4096,         /* slices remembered per process and device, for sim_wall */
    SIM_SAMPLES = 64,          /* utilisation windows remembered per process and device */
    SIM_FAULTS = 8,            /* faults that can be pending on a device */
    SIM_XIDS = 16,             /* Xid events remembered per device */
    SIM_UNDO = 64,             /* words that one step under a lock may change */
    SIM_UUID_BYTES = 48,
    SIM_NAME_BYTES = 96,
};

/* The kinds of calls that a fault can be injected into. */
enum sim_call { SIM_CALL_ALLOC = 1, SIM_CALL_LAUNCH = 2, SIM_CALL_NVML = 3, SIM_CALL_ANY = 4 };

/* What a device is; written once when the node is made. */
struct sim_profile {
    char uuid[SIM_UUID_BYTES]; /* GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx */
    char name[SIM_NAME_BYTES]; /* as NVML says it: NVIDIA A100-SXM4-80GB */
    uint64_t memory_bytes;
    uint64_t context_bytes; /* what one context takes from it */
    uint32_t sm_count;
    uint32_t compute_major;
    uint32_t compute_minor;
    uint32_t sm_clock_mhz;
    uint32_t memory_clock_mhz;
    uint32_t memory_bus_bits;
    uint32_t l2_bytes;
    uint32_t power_limit_watts;
    uint32_t architecture; /* NVML's number: 7 Ampere, 8 Ada, 9 Hopper, 10 Blackwell ... */
    uint32_t brand;        /* NVML's number */
    uint32_t pci_domain;
    uint32_t pci_bus;
    uint32_t pci_device_id; /* device << 16 | vendor */
    uint32_t pcie_generation;
    uint32_t pcie_width;
    int32_t numa_node;
    uint32_t pcie_switch;          /* devices with the same number hang on one switch */
    uint32_t nvlinks[SIM_DEVICES]; /* number of links to each other device */
    uint32_t nvlink_version;
    uint32_t reserved;
};

/* A fault that waits for its call. */
struct sim_pending_fault {
    uint32_t call; /* enum sim_call; 0: none */
    int32_t error; /* the CUDA or NVML error it answers with */
    uint64_t uses; /* how many calls it still hits */
    uint64_t delay_ns;
};

/* A lock that names its owner, and what to undo should the owner be dead (lock.h). */
struct sim_lock {
    uint32_t owner; /* the owner's ticket; 0: free */
    uint32_t undo_count;
    uint64_t rescues; /* how often it was taken from a dead owner */
    struct {
        uint64_t offset; /* of a word in the file ... */
        uint64_t value;  /* ... and what it was before */
    } undo[SIM_UNDO];
};

/* What one process has on one device. */
struct sim_usage {
    uint64_t used_bytes;
    uint64_t active_ns;  /* exact busy time, and the process's own time axis */
    uint64_t horizon_ns; /* where its queued work ends on that axis */
    uint64_t launches;
    uint64_t slice_count; /* slices ever written into its history */
    uint64_t sample_count;
    struct {
        uint64_t window;  /* wall_ns / SIM_WINDOW_NS */
        uint64_t busy_ns; /* inside that window */
    } samples[SIM_SAMPLES];
};

/* Where a process's time on a device lies on the node's clock: a ring of slices. Kept apart from
 * the accounts, so that who reads all accounts touches few pages. */
struct sim_history {
    struct {
        uint64_t active_ns; /* where the slice starts on the active axis ... */
        uint64_t wall_ns;   /* ... and on the node's clock; it runs to the next one's active_ns */
    } slices[SIM_SLICES];
};

/* A process of the node. Alive while it holds the OFD lock of its slot (view.h). */
struct sim_process {
    int32_t pid;            /* in its own pid namespace; 0: free slot */
    uint32_t generation;    /* differs between processes that had the same slot */
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid */
    uint64_t start_ticks;   /* field 22 of /proc/self/stat */
    char name[64];          /* what NVML shows: the executable's path */
    struct sim_usage usages[SIM_DEVICES];
};

struct sim_device {
    struct sim_profile profile;
    struct sim_lock lock;
    uint64_t time_ns;    /* the timeline is settled up to here */
    uint64_t used_bytes; /* sum over the processes */
    uint64_t idle_ns;    /* how much of it nobody used, since the node was made */
    uint64_t turn;       /* whose turn it is: a runnable slot, if there is one */
    uint64_t turn_started_ns;
    uint64_t checked_ns; /* when the runnable processes were last looked at for dead ones */
    uint32_t lost;       /* fell off the bus: every call answers so */
    uint32_t armed;      /* 1: lost, or a fault is pending; what a launch looks at */
    uint64_t runnable[SIM_PROCESSES / 64]; /* bit set: active < horizon */
    uint64_t runnable_count;               /* how many bits are set */
    uint64_t xid_count;                    /* events ever posted; the last SIM_XIDS are kept */
    struct {
        uint64_t xid;
        uint64_t wall_ns;
    } xids[SIM_XIDS];
    uint64_t ecc_errors;
    uint64_t energy_busy_ns; /* busy time of processes that are gone, for totals that never fall */
    uint64_t gone_launches;  /* and their launches */
    struct sim_pending_fault faults[SIM_FAULTS];
};

struct sim_state {
    char magic[8]; /* "ALIQSIM" */
    uint32_t layout;
    uint32_t device_count;
    uint64_t file_bytes;
    uint64_t made_wall_ns; /* sim_now() when the node was made ... */
    char boot_id[40];      /* ... and in which boot: its clock and its locks end with that */
    char driver_version[32];
    uint32_t cuda_version;  /* 13000 */
    uint32_t null_mode;     /* 1: launches and allocations only count */
    uint32_t hide_idle;     /* 1: NVML lists only processes with work, as some drivers do */
    uint32_t nvml_delay_us; /* slow NVML on request */
    struct sim_lock lock;   /* process slots */
    uint32_t generations[SIM_PROCESSES + SIM_OBSERVERS]; /* counts who had the number */
    struct sim_device devices[SIM_DEVICES];
    struct sim_process processes[SIM_PROCESSES];
    struct sim_history histories[SIM_PROCESSES][SIM_DEVICES];
};
