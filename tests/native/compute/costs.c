/*
 * Feeds launches and measurements to the cost estimates of one kernel; driven by test_cost.py. As
 * under the ticker, one launch in 4 ms is measured in any case.
 *
 * Reads lines "COUNT QUALITY NS": COUNT launches of a kernel that takes NS, each measured when it
 * is due, with measured spans of that quality. Prints what was charged in all, the estimate, and
 * how many launches were measured.
 */
#include <stdio.h>

#include "cost.h"

int main(void)
{
    struct cost *cost = cost_entry(42);
    long long charged_ns = 0;
    long long measured = 0;
    unsigned long long now_ns = 1;
    unsigned long long tick_ns = 0;
    long count;
    long long quality;
    long long span_ns;
    cost_reset(cost, 42, NULL);
    while (scanf("%ld %lld %lld", &count, &quality, &span_ns) == 3) {
        for (long i = 0; i < count; i++) {
            now_ns += (unsigned long long)span_ns;
            cost->countdown--;
            charged_ns += cost->estimate_ns;
            if (cost->countdown >= 0 && now_ns < tick_ns + 4000000)
                continue;
            tick_ns = now_ns;
            struct cost_window window = cost_close(cost);
            charged_ns += cost_learn(cost, &window, span_ns, (enum span_quality)quality, now_ns);
            measured++;
        }
    }
    printf("%lld %lld %lld\n", charged_ns, (long long)cost->estimate_ns, measured);
    return 0;
}
