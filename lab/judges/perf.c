/* A judge of our decoding: the digest of the instructions that perf's Intel PT decoder decodes, without text output.
 *
 *     gcc -std=c11 -O2 -Wall -Wextra -Werror -shared -fPIC -o judge-perf.so lab/judges/perf.c
 *     perf script --itrace=i0ns --dlfilter judge-perf.so --dlarg DIGEST -i RECORDING
 *
 * perf passes each instruction to filter_event_early (perf-dlfilter(1)), which suppresses its printing:
 * printing takes twice the time of decoding. DIGEST has the format of digest.h, with perf's times in
 * nanoseconds. perf still prints the errors of its decoder.
 */

#include <stdlib.h>

#include <perf/perf_dlfilter.h>

#include "digest.h"

struct perf_dlfilter_fns perf_dlfilter_fns;

struct thread {
    struct thread *next;
    struct digest digest;
    uint64_t time;
};

static FILE *output;
static struct thread *threads;

int start(void **data, void *ctx)
{
    (void)data;
    int count = 0;
    char **arguments = perf_dlfilter_fns.args(ctx, &count);
    output = count == 1 ? fopen(arguments[0], "wb") : NULL;
    return output ? 0 : -1;
}

/* Finds a thread and moves it to the front of the list: the next instruction is most likely of the same thread. */
static struct thread *find(uint32_t tid)
{
    struct thread **link = &threads, *found;
    while (*link && (*link)->digest.tid != tid)
        link = &(*link)->next;
    found = *link;
    if (found) {
        *link = found->next;
    } else if ((found = calloc(1, sizeof *found))) {
        found->digest.tid = tid;
        found->time = UINT64_MAX;
    } else {
        return NULL;
    }
    found->next = threads;
    return threads = found;
}

int filter_event_early(void *data, const struct perf_dlfilter_sample *sample, void *ctx)
{
    (void)data, (void)ctx;
    uint32_t tid = (uint32_t)sample->tid;
    struct thread *thread = threads && threads->digest.tid == tid ? threads : find(tid);
    if (!thread)
        return -1;
    if (thread->time != sample->time) {
        thread->time = sample->time;
        if (put(output, tid, TIME, thread->digest.instructions, sample->time) < 0)
            return -1;
    }
    return add(output, &thread->digest, sample->ip) < 0 ? -1 : 1;
}

int stop(void *data, void *ctx)
{
    (void)data, (void)ctx;
    for (struct thread *thread = threads; thread; thread = thread->next)
        if (end(output, &thread->digest) < 0)
            return -1;
    return fclose(output) == 0 ? 0 : -1;
}
