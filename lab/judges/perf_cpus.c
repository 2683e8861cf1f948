/* A judge of an emulated machine's recording: the instructions of each CPU as perf's Intel PT decoder decodes them.
 *
 *     gcc -std=c11 -O2 -Wall -Wextra -Werror -shared -fPIC -o judge-perf-cpus.so lab/judges/perf_cpus.c
 *     perf script --itrace=i0ns --dlfilter judge-perf-cpus.so --dlarg FILE -i RECORDING
 *
 * perf passes each instruction to filter_event_early (perf-dlfilter(1)), which suppresses its printing. FILE gets a line
 * for each CPU: its number, the number of instructions, and the digest of their addresses:
 * digest = digest * 0x9e3779b97f4a7c15 + address.
 */

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>

#include <perf/perf_dlfilter.h>

enum { CPUS = 64 };

struct perf_dlfilter_fns perf_dlfilter_fns;

static FILE *output;
static struct {
    uint64_t instructions, digest;
} cpus[CPUS];

int start(void **data, void *ctx)
{
    (void)data;
    int count = 0;
    char **arguments = perf_dlfilter_fns.args(ctx, &count);
    output = count == 1 ? fopen(arguments[0], "w") : NULL;
    return output ? 0 : -1;
}

int filter_event_early(void *data, const struct perf_dlfilter_sample *sample, void *ctx)
{
    (void)data, (void)ctx;
    if (sample->cpu < 0 || sample->cpu >= CPUS)
        return -1;
    cpus[sample->cpu].instructions++;
    cpus[sample->cpu].digest = cpus[sample->cpu].digest * UINT64_C(0x9e3779b97f4a7c15) + sample->ip;
    return 1;
}

int stop(void *data, void *ctx)
{
    (void)data, (void)ctx;
    for (int cpu = 0; cpu < CPUS; cpu++)
        if (cpus[cpu].instructions)
            fprintf(output, "%d %" PRIu64 " %" PRIu64 "\n", cpu, cpus[cpu].instructions, cpus[cpu].digest);
    return fclose(output) == 0 ? 0 : -1;
}
