/* Estimates of what launches cost; see cost.h for the idea. */

#include "cost.h"

struct cost cost_entries[COST_ENTRIES];

/* Two threads may begin to learn the same key at once: then both begin with nothing. */
void cost_reset(struct cost *cost, uint64_t key, void *meter)
{
    __atomic_store_n(&cost->key, 0, __ATOMIC_RELEASE);
    cost_set(cost->meter, meter);
    cost_set(cost->estimate_ns, COST_UNKNOWN_NS);
    cost_set(cost->countdown, 0);
    cost_set(cost->interval, 0);
    cost_set(cost->open_ns, 0);
    cost_set(cost->open_launches, 0);
    cost_set(cost->samples, 0);
    cost_set(cost->waited, 0);
    cost_set(cost->under_way, 0);
    cost_set(cost->deferred, 0);
    cost_set(cost->peak_ns, 0);
    cost_set(cost->older_peak_ns, 0);
    cost_set(cost->peak_since_ns, 0);
    cost_set(cost->last_ns, 0);
    cost_set(cost->young_ns, 0);
    cost_set(cost->young_launches, 0);
    cost_set(cost->erratic_ns, 0);
    __atomic_store_n(&cost->key, key, __ATOMIC_RELEASE);
}

static int32_t launches_open(const struct cost *cost)
{
    return cost_get(cost->interval) - cost_get(cost->countdown);
}

struct cost_window cost_close(struct cost *cost)
{
    int32_t launches = launches_open(cost);
    if (launches < 1) /* a race between threads lost a count */
        launches = 1;
    int32_t before = cost_get(cost->open_launches);
    struct cost_window window = {
        .charged_ns =
            cost_get(cost->open_ns) + (int64_t)(launches - before) * cost_get(cost->estimate_ns),
        .launches = launches,
    };
    cost_set(cost->open_ns, 0);
    cost_set(cost->open_launches, 0);
    cost_set(cost->countdown, cost_get(cost->interval));
    return window;
}

static int64_t peak(const struct cost *cost)
{
    int64_t recent = cost_get(cost->peak_ns);
    int64_t older = cost_get(cost->older_peak_ns);
    return recent > older ? recent : older;
}

static void note_peak(struct cost *cost, int64_t span_ns, uint64_t now_ns)
{
    if (now_ns - cost_get(cost->peak_since_ns) > COST_PEAK_NS) {
        cost_set(cost->older_peak_ns, cost_get(cost->peak_ns));
        cost_set(cost->peak_ns, 0);
        cost_set(cost->peak_since_ns, now_ns);
    }
    if (span_ns > cost_get(cost->peak_ns))
        cost_set(cost->peak_ns, span_ns);
}

/* Measuring is frequent while a kernel is new or its cost varies, and rare when it is steady. */
static int32_t next_interval(const struct cost *cost, bool steady)
{
    if (!steady || cost_get(cost->samples) + cost_get(cost->waited) < COST_STEADY_SAMPLES)
        return 0;
    int64_t interval = COST_MEASURE_NS / (peak(cost) + 1);
    return (int32_t)(interval < COST_INTERVAL_MAX ? interval : COST_INTERVAL_MAX);
}

static void set_interval(struct cost *cost, int32_t interval)
{
    /* Moved together, so the number of open launches stays what it was. */
    int32_t change = interval - cost_get(cost->interval);
    cost_set(cost->interval, interval);
    __atomic_fetch_add(&cost->countdown, change, __ATOMIC_RELAXED);
}

bool cost_postpone(struct cost *cost)
{
    if (!cost_known(cost) || cost_get(cost->estimate_ns) > COST_CHEAP_NS ||
        cost_get(cost->under_way) < 2)
        return false;
    set_interval(cost, cost_get(cost->interval) + COST_INTERVAL_MAX / 4);
    return true;
}

static void set_estimate(struct cost *cost, int64_t estimate_ns)
{
    int32_t open = launches_open(cost);
    int64_t since_ns =
        (int64_t)(open - cost_get(cost->open_launches)) * cost_get(cost->estimate_ns);
    cost_set(cost->open_ns, cost_get(cost->open_ns) + since_ns);
    cost_set(cost->open_launches, open);
    cost_set(cost->estimate_ns, estimate_ns);
}

static bool is_near(int64_t a, int64_t b)
{
    int64_t larger = a > b ? a : b;
    int64_t apart = a > b ? a - b : b - a;
    return apart <= larger / 4 + 1000;
}

/*
 * A low one of the remembered spans: of 16 the third lowest, so that two odd ones do not count, and
 * three without a slice of others in them are enough.
 */
static int64_t low_span(const struct cost *cost)
{
    uint32_t sorted[COST_SPANS];
    uint32_t count = cost_get(cost->samples) < COST_SPANS ? cost_get(cost->samples) : COST_SPANS;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && sorted[at - 1] > cost->spans[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = cost->spans[i];
    }
    return sorted[count / 8];
}

static void note_erratic(struct cost *cost)
{
    uint32_t count = cost_get(cost->samples) < COST_SPANS ? cost_get(cost->samples) : COST_SPANS;
    uint32_t shortest = UINT32_MAX;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < count; i++) {
        shortest = cost->spans[i] < shortest ? cost->spans[i] : shortest;
        longest = cost->spans[i] > longest ? cost->spans[i] : longest;
    }
    bool is_erratic = longest / COST_ERRATIC > shortest;
    cost_set(cost->erratic_ns, is_erratic ? longest : 0);
}

static int64_t learn_alone(struct cost *cost, const struct cost_window *window, int64_t span_ns)
{
    int64_t last_ns = cost_get(cost->last_ns);
    bool is_first = cost_get(cost->samples) == 1;
    bool steady = is_near(span_ns, last_ns);
    /*
     * The launches between two measurements took what both say. When the two differ, the cost has
     * changed somewhere between; the measured launch is then the first of the new kind, because a
     * cost that changes often is measured at every launch.
     */
    int64_t others_ns = steady ? (span_ns + last_ns) / 2 : last_ns;
    if (is_first)
        others_ns = span_ns;
    int64_t took_ns = span_ns + (int64_t)(window->launches - 1) * others_ns;
    int64_t estimate_ns = cost_get(cost->estimate_ns);
    estimate_ns = is_first ? span_ns : estimate_ns + (span_ns - estimate_ns) / 4;
    set_estimate(cost, estimate_ns);
    set_interval(cost, next_interval(cost, steady));
    return took_ns - window->charged_ns;
}

static bool is_young(const struct cost *cost)
{
    return cost_get(cost->samples) + cost_get(cost->waited) <= COST_YOUNG_SAMPLES;
}

/*
 * Among others a launch takes what is believed of it, not what it measured. The first beliefs are
 * too high, because a low span must be met first; so while a kernel is young, all its launches are
 * priced anew whenever more is known.
 */
static int64_t price(struct cost *cost, const struct cost_window *window, int64_t estimate_ns)
{
    if (!is_young(cost))
        return 0;
    int32_t launches = cost_get(cost->young_launches) + window->launches;
    int64_t charged_ns = cost_get(cost->young_ns) + window->charged_ns;
    int64_t took_ns = launches * estimate_ns;
    cost_set(cost->young_launches, launches);
    cost_set(cost->young_ns, took_ns);
    return took_ns - charged_ns;
}

/*
 * Under contention a span is the cost plus what others had of the GPU meanwhile; the low spans are
 * the honest ones, and no single one is believed.
 */
static void learn_contended(struct cost *cost, int64_t estimate_ns)
{
    set_estimate(cost, estimate_ns);
    set_interval(cost, next_interval(cost, is_near(estimate_ns, cost_get(cost->last_ns))));
}

/*
 * A span that contains waiting is only an upper bound. Where there are no others, the lowest of
 * some is taken: sooner or later a launch finds the GPU free.
 */
static int64_t lowest_waited(struct cost *cost, int64_t span_ns)
{
    uint32_t before = cost_get(cost->waited);
    cost_set(cost->waited, before + 1);
    if (before % COST_WAITS == 0) {
        cost->lowest[1] = before > 0 ? cost->lowest[0] : (uint32_t)span_ns;
        cost->lowest[0] = (uint32_t)span_ns;
    }
    if (span_ns < cost->lowest[0])
        cost->lowest[0] = (uint32_t)span_ns;
    return cost->lowest[0] < cost->lowest[1] ? cost->lowest[0] : cost->lowest[1];
}

/*
 * Whether upper bounds say something new. Where every span contains slices of other containers, the
 * arbiter puts right what charges get wrong in the mean; that takes it seconds, so what is charged
 * is better steady than a little closer. And none of many spans may be without slices, which does
 * not make the kernel a longer one.
 */
static bool is_news(const struct cost *cost, int64_t lowest_ns, enum span_quality quality)
{
    int64_t believed_ns = cost_get(cost->estimate_ns);
    bool outdated = cost_get(cost->waited) > 2 * COST_WAITS;
    if (quality != SPAN_SLICED || is_young(cost))
        return lowest_ns < believed_ns || outdated;
    if (lowest_ns < believed_ns)
        return !is_near(lowest_ns, believed_ns);
    return outdated && lowest_ns / COST_ERRATIC > believed_ns;
}

int64_t cost_learn(struct cost *cost, const struct cost_window *window, int64_t span_ns,
                   enum span_quality quality, uint64_t now_ns)
{
    if (span_ns < 0)
        span_ns = 0;
    if (span_ns > COST_SPAN_NS_MAX)
        span_ns = COST_SPAN_NS_MAX;
    int64_t believed_ns = cost_get(cost->estimate_ns);
    int64_t correction_ns;
    if (quality >= SPAN_WAITED && cost_known(cost)) {
        int64_t lowest = lowest_waited(cost, span_ns);
        if (is_news(cost, lowest, quality)) {
            learn_contended(cost, lowest);
            believed_ns = lowest;
        } else {
            set_interval(cost, next_interval(cost, true));
        }
        correction_ns = price(cost, window, believed_ns);
    } else {
        uint32_t samples = cost_get(cost->samples);
        cost_set(cost->waited, 0);
        cost->spans[samples % COST_SPANS] = (uint32_t)span_ns;
        cost_set(cost->samples, samples + 1);
        note_erratic(cost);
        if (quality == SPAN_ALONE) {
            correction_ns = learn_alone(cost, window, span_ns);
            believed_ns = span_ns;
        } else {
            believed_ns = low_span(cost);
            learn_contended(cost, believed_ns);
            correction_ns = price(cost, window, believed_ns);
        }
    }
    note_peak(cost, believed_ns, now_ns);
    cost_set(cost->last_ns, believed_ns);
    return correction_ns;
}
