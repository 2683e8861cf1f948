/* SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "master.h"
#include "master_trace.h"

static struct master_trace_default_ctx context;
static uint8_t buffer[4096];
static FILE *stream;
static const char *out;
static uint64_t shown;

static uint64_t shown_time(void *data)
{
    (void)data;
    return shown;
}

static int never_full(void *data)
{
    (void)data;
    return 0;
}

static void open_packet(void *data)
{
    (void)data;
    master_trace_default_open_packet(&context);
}

static void close_packet(void *data)
{
    (void)data;
    master_trace_default_close_packet(&context);
    if (fwrite(buffer, sizeof buffer, 1, stream) != 1)
        fail("can't write the packets of the master; is the disk full?", out);
}

void trace_folder(const struct settings *settings, const char *folder, const char *template, const char *word,
                  const char *named)
{
    char path[2 * LONGEST_PATH], line[1024];
    FILE *from, *to;

    snprintf(path, sizeof path, "%s/%s", settings->out, folder);
    if (mkdir(path, 0777) && errno != EEXIST)
        fail("can't make the folder", path);
    snprintf(path, sizeof path, "%s/%s", settings->metadata, template);
    from = fopen(path, "r");
    if (!from)
        fail("can't read", path);
    snprintf(path, sizeof path, "%s/%s/metadata", settings->out, folder);
    to = fopen(path, "w");
    if (!to)
        fail("can't write", path);
    while (fgets(line, sizeof line, from)) {
        char clock[64], host[64], *at, *rest = line;
        snprintf(clock, sizeof clock, "%s_clk", word);
        snprintf(host, sizeof host, "hostname = \"%s\"", word);
        while ((at = strstr(rest, clock)) != 0) {
            fprintf(to, "%.*s%s_clk", (int)(at - rest), rest, named);
            rest = at + strlen(clock);
        }
        if ((at = strstr(rest, host)) != 0) {
            fprintf(to, "%.*shostname = \"%s\"", (int)(at - rest), rest, named);
            rest = at + strlen(host);
        }
        fputs(rest, to);
    }
    fclose(from);
    if (fclose(to))
        fail("can't write", path);
}

void trace_begin(const struct settings *settings)
{
    struct master_trace_platform_callbacks callbacks;
    char path[LONGEST_PATH + 32];

    out = settings->out;
    trace_folder(settings, "master", "master.tsdl", "master", "master");
    snprintf(path, sizeof path, "%s/master/stream", settings->out);
    stream = fopen(path, "wb");
    if (!stream)
        fail("can't write", path);
    callbacks.master_clk_clock_get_value = shown_time;
    callbacks.is_backend_full = never_full;
    callbacks.open_packet = open_packet;
    callbacks.close_packet = close_packet;
    master_trace_init(&context, buffer, sizeof buffer, callbacks, 0);
    shown = clock_nanoseconds(clock_raw(0));
    open_packet(0);
}

static uint64_t unique(const struct slave *slave, uint32_t number)
{
    return ((uint64_t)slave->number << 32) | number;
}

void trace_start(uint64_t raw, unsigned slaves, const struct settings *settings, unsigned realtime)
{
    shown = clock_nanoseconds(raw);
    master_trace_trace_master_start(&context, slaves, settings->period_us, settings->exchanges, settings->polling,
                                    realtime);
}

void trace_exchange(const struct slave *slave, const struct hodo_exchange *exchange)
{
    shown = clock_nanoseconds(exchange->sent);
    master_trace_trace_sync_send(&context, slave->number, unique(slave, exchange->number));
    if (exchange->answered) {
        shown = clock_nanoseconds(exchange->received);
        master_trace_trace_sync_recv(&context, slave->number, unique(slave, exchange->number + 1));
    } else {
        shown = clock_nanoseconds(clock_raw(0));
        master_trace_trace_sync_lost(&context, slave->number, unique(slave, exchange->number));
    }
}

void trace_started(uint64_t raw, const struct slave *slave, uint32_t epoch)
{
    shown = clock_nanoseconds(raw);
    master_trace_trace_slave_started(&context, slave->number, epoch);
}

void trace_broken(uint64_t raw, const struct slave *slave, uint32_t count)
{
    shown = clock_nanoseconds(raw);
    master_trace_trace_ring_broken(&context, slave->number, count);
}

void trace_function(uint64_t raw, int entry, uint8_t function)
{
    shown = clock_nanoseconds(raw);
    if (entry)
        master_trace_trace_func_entry(&context, function);
    else
        master_trace_trace_func_exit(&context, function);
}

void trace_message(uint64_t raw, int sent, const struct slave *slave, uint64_t id)
{
    shown = clock_nanoseconds(raw);
    if (sent)
        master_trace_trace_msg_send(&context, slave->number, id);
    else
        master_trace_trace_msg_recv(&context, slave->number, id);
}

void trace_end(void)
{
    if (master_trace_packet_is_open(&context) && !master_trace_packet_is_empty(&context))
        close_packet(0);
    if (fclose(stream))
        fail("can't write the packets of the master; is the disk full?", out);
}
