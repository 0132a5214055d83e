/*
 * Who may use how much of one GPU.
 *
 * First everybody's guaranteed share is set aside: all of it for who wants it, what is used of it
 * for who does not. What is left is lent, by weight, to `burst` containers that want more than
 * their share, and what they leave to `best-effort` ones.
 */
#include "arbiter.h"

enum {
    HEADROOM = 300, /* kept free above what a lender uses, so that it grows without waiting */
    SLACK = 1000,   /* lent above what a borrower uses, for the same reason */
};

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* What must stay available to a container whatever others want. */
static uint32_t reserve_of(const struct arbiter_claim *claim)
{
    if (claim->held)
        return claim->share;
    return claim->demand == 0 ? 0 : smaller(claim->share, claim->demand + HEADROOM);
}

/* How much more than its share a container can make use of. */
static uint32_t appetite_of(const struct arbiter_claim *claim)
{
    uint32_t most = LIMITS_WHOLE - claim->share;
    if (claim->policy == LIMITS_FIXED)
        return 0;
    if (claim->held)
        return most;
    uint32_t wanted = claim->demand + SLACK;
    return claim->demand == 0 || wanted <= claim->share ? 0 : smaller(most, wanted - claim->share);
}

/* Lends to the containers of one policy by weight; answers what is left. */
static uint32_t lend(struct arbiter_claim *claims, uint32_t count, uint32_t policy, uint32_t spare)
{
    for (;;) {
        uint64_t weights = 0;
        for (uint32_t i = 0; i < count; i++)
            if (claims[i].policy == policy &&
                claims[i].grant < claims[i].share + appetite_of(&claims[i]))
                weights += claims[i].weight;
        if (weights == 0 || spare == 0)
            return spare;
        uint32_t lent = 0;
        for (uint32_t i = 0; i < count; i++) {
            struct arbiter_claim *claim = &claims[i];
            uint32_t most = claim->share + appetite_of(claim);
            if (claim->policy != policy || claim->grant >= most)
                continue;
            uint32_t part = (uint32_t)((uint64_t)spare * claim->weight / weights);
            part = smaller(part == 0 ? 1 : part, most - claim->grant);
            part = smaller(part, spare - lent);
            claim->grant += part;
            lent += part;
        }
        spare -= lent;
    }
}

void arbiter_decide(struct arbiter_claim *claims, uint32_t count)
{
    uint32_t reserved = 0;
    uint32_t active = 0;
    for (uint32_t i = 0; i < count; i++) {
        claims[i].grant = claims[i].share;
        reserved += reserve_of(&claims[i]);
        active += claims[i].held || claims[i].demand != 0;
    }
    uint32_t spare = reserved < LIMITS_WHOLE ? LIMITS_WHOLE - reserved : 0;
    /* Whoever is alone has everything at once, without having to show that it wants it. */
    if (active <= 1) {
        for (uint32_t i = 0; i < count; i++)
            if (claims[i].policy != LIMITS_FIXED && (claims[i].held || claims[i].demand != 0))
                claims[i].grant = LIMITS_WHOLE;
        return;
    }
    spare = lend(claims, count, LIMITS_BURST, spare);
    lend(claims, count, LIMITS_BEST_EFFORT, spare);
}
