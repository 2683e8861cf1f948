/* How fast Intel's libipt reads raw Intel PT: packets, blocks or instructions.
 *
 *     gcc -std=c11 -O2 -Wall -Wextra -Werror -o peer-libipt lab/peers/libipt.c -lipt  # libipt-dev
 *     peer-libipt packets|blocks|insns [--code FILE:OFFSET:SIZE@ADDRESS]... [--cpu FAMILY/MODEL/STEPPING]
 *                 TRACE[:OFFSET:SIZE]...
 *
 * Reads all traces twice in one process and prints one line of JSON: `bytes`, `cold_ns` (first pass,
 * with no page of them mapped and no block known), `hot_ns` (second pass, same image and block caches), `items`
 * (packets, blocks or instructions of one pass), `instructions` and `errors`. An error sends the decoder
 * on to the next PSB. Numbers are decimal, or hexadecimal with 0x.
 */

#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <intel-pt.h>

/* After this many instructions without the end of a trace, libipt is in an endless loop. */
#define TOO_MANY UINT64_C(100000000000)

struct trace {
    uint8_t *bytes;
    uint64_t size;
};

struct counts {
    uint64_t items, instructions, errors;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "peer-libipt: %s: %s\n", what, why);
    exit(2);
}

/* Parses and removes the number after the last `separator`. Returns 0 if there is none. */
static int cut_number(char *text, char separator, uint64_t *number)
{
    char *at = strrchr(text, separator), *end;
    if (!at)
        return 0;
    *number = strtoull(at + 1, &end, 0);
    if (end == at + 1 || *end)
        return 0;
    *at = '\0';
    return 1;
}

static struct trace load(char *argument)
{
    uint64_t offset = 0, size = 0;
    int part = cut_number(argument, ':', &size) && cut_number(argument, ':', &offset);
    int file = open(argument, O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0)
        fail(argument, "can't be read");
    uint64_t length = (uint64_t)status.st_size;
    if (!part)
        size = length;
    if (offset > length || size > length - offset)
        fail(argument, "ends before the trace does");
    uint8_t *bytes = mmap(NULL, length, PROT_READ, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED)
        fail(argument, "can't be mapped");
    close(file);
    return (struct trace){bytes + offset, size};
}

static void add_code(struct pt_image_section_cache *cache, struct pt_image *image, char *argument)
{
    uint64_t address, size, offset;
    if (!cut_number(argument, '@', &address) || !cut_number(argument, ':', &size) ||
        !cut_number(argument, ':', &offset))
        fail(argument, "expected FILE:OFFSET:SIZE@ADDRESS");
    int section = pt_iscache_add_file(cache, argument, offset, size, address);
    if (section < 0)
        fail(argument, pt_errstr(pt_errcode(section)));
    int status = pt_image_add_cached(image, cache, section, NULL);
    if (status < 0)
        fail(argument, pt_errstr(pt_errcode(status)));
}

static void packets(struct pt_config *config, struct pt_image *image, struct counts *counts)
{
    (void)image;
    struct pt_packet_decoder *decoder = pt_pkt_alloc_decoder(config);
    struct pt_packet packet;
    while (pt_pkt_sync_forward(decoder) >= 0) {
        int status;
        while ((status = pt_pkt_next(decoder, &packet, sizeof packet)) >= 0)
            counts->items++;
        if (status == -pte_eos)
            break;
        counts->errors++;
    }
    pt_pkt_free_decoder(decoder);
}

static void blocks(struct pt_config *config, struct pt_image *image, struct counts *counts)
{
    struct pt_block_decoder *decoder = pt_blk_alloc_decoder(config);
    pt_blk_set_image(decoder, image);
    int status;
    while ((status = pt_blk_sync_forward(decoder)) >= 0) {
        do {
            struct pt_event event;
            while (status >= 0 && status & pts_event_pending)
                status = pt_blk_event(decoder, &event, sizeof event);
            if (status < 0 || status & pts_eos)
                break;
            struct pt_block block = {.ninsn = 0};
            status = pt_blk_next(decoder, &block, sizeof block);
            counts->items++;
            counts->instructions += block.ninsn;
        } while (status >= 0 && counts->instructions < TOO_MANY);
        if (status >= 0 || status == -pte_eos)
            break;
        counts->errors++;
    }
    pt_blk_free_decoder(decoder);
}

static void insns(struct pt_config *config, struct pt_image *image, struct counts *counts)
{
    struct pt_insn_decoder *decoder = pt_insn_alloc_decoder(config);
    pt_insn_set_image(decoder, image);
    int status;
    while ((status = pt_insn_sync_forward(decoder)) >= 0) {
        do {
            struct pt_event event;
            while (status >= 0 && status & pts_event_pending)
                status = pt_insn_event(decoder, &event, sizeof event);
            if (status < 0 || status & pts_eos)
                break;
            struct pt_insn instruction = {.iclass = ptic_error};
            status = pt_insn_next(decoder, &instruction, sizeof instruction);
            counts->instructions += instruction.iclass != ptic_error;
        } while (status >= 0 && counts->instructions < TOO_MANY);
        if (status >= 0 || status == -pte_eos)
            break;
        counts->errors++;
    }
    counts->items = counts->instructions;
    pt_insn_free_decoder(decoder);
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

int main(int count, char **arguments)
{
    struct pt_config config;
    struct pt_image_section_cache *cache = pt_iscache_alloc(NULL);
    struct pt_image *image = pt_image_alloc(NULL);
    struct trace *traces = calloc((size_t)count, sizeof *traces);
    int trace_count = 0;
    pt_config_init(&config);
    if (!cache || !image || !traces || pt_iscache_set_limit(cache, UINT64_C(1) << 32) < 0)
        fail("image", "no memory");
    void (*read)(struct pt_config *, struct pt_image *, struct counts *) = NULL;
    if (count > 1)
        read = strcmp(arguments[1], "packets") == 0  ? packets
               : strcmp(arguments[1], "blocks") == 0 ? blocks
               : strcmp(arguments[1], "insns") == 0  ? insns
                                                     : NULL;
    if (!read)
        fail("first argument", "expected packets, blocks or insns");
    for (int index = 2; index < count; index++) {
        if (strcmp(arguments[index], "--code") == 0 && arguments[index + 1]) {
            add_code(cache, image, arguments[++index]);
        } else if (strcmp(arguments[index], "--cpu") == 0 && arguments[index + 1]) {
            unsigned family, model, stepping;
            if (sscanf(arguments[++index], "%u/%u/%u", &family, &model, &stepping) != 3)
                fail(arguments[index], "expected FAMILY/MODEL/STEPPING");
            config.cpu.vendor = pcv_intel;
            config.cpu.family = (uint16_t)family;
            config.cpu.model = (uint8_t)model;
            config.cpu.stepping = (uint8_t)stepping;
            pt_cpu_errata(&config.errata, &config.cpu);
        } else {
            traces[trace_count++] = load(arguments[index]);
        }
    }
    uint64_t bytes = 0, times[2];
    struct counts counts = {0};
    for (int pass = 0; pass < 2; pass++) {
        uint64_t begin = now();
        counts = (struct counts){0};
        bytes = 0;
        for (int index = 0; index < trace_count; index++) {
            config.begin = traces[index].bytes;
            config.end = config.begin + traces[index].size;
            bytes += traces[index].size;
            read(&config, image, &counts);
        }
        times[pass] = now() - begin;
    }
    printf("{\"bytes\":%" PRIu64 ",\"cold_ns\":%" PRIu64 ",\"hot_ns\":%" PRIu64 ",\"items\":%" PRIu64
           ",\"instructions\":%" PRIu64 ",\"errors\":%" PRIu64 "}\n",
           bytes, times[0], times[1], counts.items, counts.instructions, counts.errors);
    return 0;
}
