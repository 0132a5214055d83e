/*
 * The usage file: what the processes of a container use, written by the shim in each of them, one
 * file for memory and one for compute. It belongs to the tenant, so nobody trusts it: the shim
 * survives damage to it, the agent reads copies of it.
 *
 * There is no total and no lock. Every process claims a slot (its place in the list of owners) and
 * changes only its own words; whoever needs a total adds up the words of all slots. The words of
 * one device stand side by side, so adding up is a walk over consecutive memory.
 *
 * Memory words, owners and counters are code words: w = 65521 v + 1 for a value v below 2^48. A
 * word that is no code word is damaged; so is one that was zeroed. Sums of code words can be
 * checked as a whole: n words add up to 65521 (v1 + ... + vn) + n. Compute words are plain counts.
 *
 * cffi reads this file as its cdef, so it holds plain declarations only: no directives, no inline
 * code. C includes usage_file.h. Growing: a layout only adds areas, and the header tells where each
 * one begins; this layout and the one before it are read, others are refused.
 */

enum {
    USAGE_LAYOUT = 1,
    USAGE_FILE_BYTES_MAX = 65536, /* the tmpfs that holds it */
    USAGE_SLOTS_MAX = 1024,       /* fewer when many devices share the file */
    USAGE_CODE = 65521,           /* a prime: no flip of two bits keeps a word valid */
    USAGE_MEASURES_MAX = 6,
    USAGE_NAMESPACE_MASK = 0x3fff, /* pid namespaces and start times are told apart by remainders */
    USAGE_START_MASK = 0xfff,
};

/* The words that a process has for each device, by kind of file. */
enum usage_memory_measure { USAGE_HELD_BYTES = 0 };
enum usage_compute_measure {
    USAGE_BUSY_NS = 0,      /* GPU time charged */
    USAGE_THROTTLED_NS = 1, /* time for which launches were held */
    USAGE_LAUNCHES = 2,
    USAGE_DEALT_NS = 3,   /* GPU time that was dealt to the process, by whichever process */
    USAGE_ACCEPTS_NS = 4, /* ... and up to where it takes more */
    USAGE_ACTIVE_NS = 5,  /* when it last had work on the device; CLOCK_MONOTONIC */
};

/* What is wrong with a usage file, as usage_check answers it. */
enum usage_fault {
    USAGE_TOO_SHORT = -1,
    USAGE_NOT_USAGE = -2,
    USAGE_OTHER_LAYOUT = -3,
    USAGE_OTHER_KIND = -4,
    USAGE_DAMAGED = -5,
};

struct usage_header {
    char magic[8]; /* "ALIQUSE" */
    uint32_t layout;
    uint32_t kind; /* enum account_kind */
    uint32_t file_bytes;
    uint32_t device_count;
    uint32_t slot_count;
    uint32_t measure_count;
    uint32_t counters_at; /* struct usage_counters[device_count] */
    uint32_t owners_at;   /* uint64_t[slot_count] */
    uint32_t words_at;    /* uint64_t[measure_count][device_count][slot_count] */
    uint32_t reserved;
    uint64_t checksum; /* over everything above */
    uint64_t mark;     /* code word: slots at and above it were never claimed */
};

/* What is counted per device for the whole container. Code words. */
struct usage_counters {
    uint64_t edge;    /* owner of the request that is being decided at the cap; of 0: none */
    uint64_t peak;    /* most bytes that were ever held at once */
    uint64_t refused; /* allocations */
    uint64_t reserved[5];
};

/* The same place in a compute file. Plain words; times are CLOCK_MONOTONIC. */
struct usage_compute_counters {
    uint64_t dealt_until_ns; /* the container's share has been dealt up to here */
    uint64_t active_ns;      /* when work was last on the device */
    uint64_t wanted_ns;      /* when a launch was last held for lack of budget */
    uint64_t busy_ns;        /* GPU time charged by all processes that ever were */
    uint64_t occupied_ns;    /* time for which work was on the device, running or waiting */
    uint64_t throttled_ns;   /* time for which launches were held, by all that ever were */
    uint64_t launches;       /* likewise */
    uint64_t reserved;
};

/* One slot, decoded. A damaged word reads as 0 and is counted. */
struct usage_process {
    int32_t pid;           /* in its own pid namespace; 0: the slot is free */
    uint32_t namespace_id; /* low bits of the pid namespace's inode; 0: unknown */
    uint32_t start_id;     /* derived from the start time; 0: unknown */
    uint32_t damaged;      /* number of damaged words, the owner included */
    uint64_t values[USAGE_MEASURES_MAX][16];
};

/* How many slots fit for so many devices, and how long the file is then. */
uint32_t usage_slots(uint32_t kind, uint32_t device_count);
uint32_t usage_file_bytes(uint32_t kind, uint32_t device_count);

/* Makes an image of an empty usage file, usage_file_bytes() long. */
void usage_format(void *image, uint32_t kind, uint32_t device_count);

/* Whether an image is a usage file of this kind: 0 or a usage_fault. */
int usage_check(const void *image, size_t bytes, uint32_t kind);

/* A fault in words that complete "the usage file ...". */
const char *usage_fault_text(int fault);

/* How many slots of an image that was checked have ever been claimed; all when that is unclear. */
uint32_t usage_mark(const void *image);

/* Reads one slot of an image that was checked; slot < slot_count. */
void usage_slot(const void *image, uint32_t slot, struct usage_process *process);

/* The value of a code word, or UINT64_MAX. */
uint64_t usage_decode(uint64_t word);

/*
 * Whether a process, as a slot names it, is certainly gone. One in another pid namespace cannot be
 * judged from here and counts as alive.
 */
int process_is_dead(int32_t pid, uint32_t namespace_id, uint32_t start_id);
