/*
 * The limits file: what a container may have, written by the agent (or `aliquot run`), read-only
 * for everybody else. Memory and compute have one each, of the same layout.
 *
 * The file is created whole and then only changed in place, through a shared mapping. Two slots
 * take turns: the writer fills the older one and publishes it by its sequence number, a reader
 * takes the valid slot with the highest sequence. A writer that is killed half-way leaves the other
 * slot as it was, so there is nothing to wait for and nothing to repair.
 *
 * cffi reads this file as its cdef, so it holds plain declarations only: no directives, no inline
 * code. C includes limits_file.h.
 *
 * Growing: a layout only ever uses up reserved fields or makes records longer. The header tells
 * the sizes, a shorter record reads as if the missing end were zero, and zero always means "as
 * before". So this layout and the one before it are both read and updated; others are refused.
 */

enum {
    LIMITS_LAYOUT = 1,
    LIMITS_FILE_BYTES = 4096,
    LIMITS_SLOTS = 2,
    LIMITS_DEVICES = 16,
    LIMITS_UUID_BYTES = 16,
    LIMITS_WHOLE = 10000, /* a whole device's compute, in hundredths of a percent */
    LIMITS_RATIOS = 8,
};

/* Which half of an allocation a limits or usage file belongs to. */
enum account_kind { ACCOUNT_MEMORY = 1, ACCOUNT_COMPUTE = 2 };

enum limits_policy { LIMITS_FIXED = 1, LIMITS_BURST = 2, LIMITS_BEST_EFFORT = 3 };

/* What is wrong with a limits file, as limits_read answers it. */
enum limits_fault {
    LIMITS_TOO_SHORT = -1,
    LIMITS_NOT_LIMITS = -2,
    LIMITS_OTHER_LAYOUT = -3,
    LIMITS_OTHER_KIND = -4,
    LIMITS_DAMAGED = -5,
};

/* How much more or less GPU time a process has used, by NVML, than it was charged. */
struct limits_ratio {
    uint16_t slot;        /* in the compute usage file */
    uint16_t thousandths; /* used over charged; 0: nothing said */
};

struct limits_device {
    uint8_t uuid[LIMITS_UUID_BYTES];
    uint64_t limit_bytes;    /* UINT64_MAX: no cap, said outright; 0: not a byte */
    uint32_t share;          /* guaranteed compute, in hundredths of a percent */
    uint32_t grant;          /* compute allowed until grant_until_ns, in the same unit */
    uint64_t grant_until_ns; /* CLOCK_MONOTONIC, the same in every container of a host */
    uint64_t contended_ns;   /* when others were last seen on the device, same clock; 0: none are */
    struct limits_ratio ratios[LIMITS_RATIOS]; /* as long as the grant holds */
    uint64_t reserved[5];
};

struct limits_head {
    uint32_t device_count;
    uint32_t policy;     /* enum limits_policy */
    uint32_t weight;     /* of a borrower among borrowers */
    uint32_t flags;      /* none yet */
    uint64_t generation; /* counts the updates; for people and tests, not for readers */
    uint64_t written_ns; /* CLOCK_REALTIME */
    uint64_t reserved[2];
};

struct limits_body {
    struct limits_head head;
    struct limits_device devices[LIMITS_DEVICES];
};

struct limits_slot {
    uint64_t sequence; /* 0: being written, or never was */
    uint64_t checksum; /* over the sequence and the body */
    struct limits_body body;
};

struct limits_header {
    char magic[8]; /* "ALIQLIM" */
    uint32_t layout;
    uint32_t kind; /* enum account_kind */
    uint32_t file_bytes;
    uint32_t slots_at; /* offset of the first slot */
    uint32_t slot_bytes;
    uint32_t head_bytes;   /* of the body's head ... */
    uint32_t device_bytes; /* ... and of each of its device records */
    uint32_t reserved[21];
    uint64_t checksum; /* over everything above */
};

struct limits_file {
    struct limits_header header;
    struct limits_slot slots[LIMITS_SLOTS];
};

/* Makes an image of a limits file in which nothing has been published yet. */
void limits_format(struct limits_file *image, uint32_t kind);

/*
 * Publishes a body in the layout that the image has. Writers take turns by a lock of their own.
 * Answers 0 or a limits_fault; a body that a reader would refuse is LIMITS_DAMAGED.
 */
int limits_publish(void *image, size_t bytes, const struct limits_body *body);

/*
 * Copies the newest valid body; never waits. Answers the number of its slot or a limits_fault.
 * The image may change meanwhile and may hold anything.
 */
int limits_read(const void *image, size_t bytes, uint32_t kind, struct limits_body *body);

/* A fault in words that complete "the limits file ...". */
const char *limits_fault_text(int fault);
