/* A second judge of our decoding: the instructions that Intel's libipt finds in a raw Intel PT buffer.
 *
 *     gcc -std=c11 -O2 -Wall -Wextra -Werror -o judge-libipt lab/judges/libipt.c -lipt  # libipt-dev
 *     judge-libipt [--cpu FAMILY/MODEL[/STEPPING]] [--limit N] [--events] [--raw FILE:OFFSET:SIZE@ADDRESS]...
 *                  [--expect | --digest] TRACE[:OFFSET:SIZE] [[--raw FILE:OFFSET:SIZE@ADDRESS]... TRACE[:OFFSET:SIZE]]...
 *
 * TRACE is one thread's or one CPU's buffer, or a part of a file. Each --raw adds code of the next TRACE:
 * SIZE bytes of FILE from OFFSET, mapped at ADDRESS; a later one replaces an earlier one that it overlaps. Numbers
 * are decimal, or hexadecimal with 0x. Code does not change during a trace: libipt has no times of mappings.
 *
 * Prints the address of every executed instruction, one per line in lower-case hexadecimal. Lines that begin
 * with "# " interrupt the stream: an error with its offset in the buffer (decoding continues at the next PSB),
 * or an overflow; with --events, every event. Without --cpu no erratum is assumed.
 *
 * libipt does not detect a loop that consumes no packet (`jmp .`), which an error may lead to: it would loop
 * for ever and fill the disk. Always pass --limit: decoding more than N instructions is an error.
 *
 * Exit status: 0 if there are no errors, 1 after errors, 2 if the arguments are wrong or a file can't be read.
 *
 * With --digest, the number of instructions and the digest of their addresses that a native recording has
 * (crates/native-log/src/items.rs) are printed instead, in a last line: `digest COUNT HEXADECIMAL`.
 *
 * With --expect, instructions are not printed but compared with the expected ones on standard input, see
 * libipt_expect.h. The first difference is printed in a line that begins with "# difference", and ends the
 * comparison. The last three lines are counts: `same`, equal instructions; `stale`, returns at which libipt
 * fails as described there; and `left`, instructions skipped because of that.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <intel-pt.h>

#include "libipt_events.h"
#include "libipt_expect.h"

/* FILE:OFFSET:SIZE, parsed from an argument. */
struct part {
    char *file;
    uint64_t offset, size;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "judge-libipt: %s: %s\n", what, why);
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

static int cut_part(char *text, struct part *part)
{
    part->file = text;
    return cut_number(text, ':', &part->size) && cut_number(text, ':', &part->offset);
}

/* Keeps all code mapped: without it, libipt maps a file each time the flow comes into it. */
static struct pt_image_section_cache *cache;

static void add_code(struct pt_image *image, char *argument)
{
    struct part part;
    uint64_t address;
    if (!cut_number(argument, '@', &address) || !cut_part(argument, &part))
        fail(argument, "expected FILE:OFFSET:SIZE@ADDRESS");
    int section = pt_iscache_add_file(cache, part.file, part.offset, part.size, address);
    if (section < 0)
        fail(part.file, pt_errstr(pt_errcode(section)));
    int status = pt_image_add_cached(image, cache, section, NULL);
    if (status < 0)
        fail(part.file, pt_errstr(pt_errcode(status)));
}

static void set_cpu(struct pt_config *config, const char *argument)
{
    unsigned family, model, stepping = 0;
    if (sscanf(argument, "%u/%u/%u", &family, &model, &stepping) < 2)
        fail(argument, "expected FAMILY/MODEL[/STEPPING]");
    config->cpu.vendor = pcv_intel;
    config->cpu.family = (uint16_t)family;
    config->cpu.model = (uint8_t)model;
    config->cpu.stepping = (uint8_t)stepping;
    int status = pt_cpu_errata(&config->errata, &config->cpu);
    if (status < 0)
        fail(argument, pt_errstr(pt_errcode(status)));
}

static void load_trace(struct pt_config *config, char *argument)
{
    struct part part;
    int whole = !cut_part(argument, &part);
    FILE *file = fopen(part.file, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        fail(part.file, "can't be read");
    if (whole) {
        part.offset = 0;
        part.size = (uint64_t)ftell(file);
    }
    config->begin = malloc(part.size + 1);
    if (!config->begin || fseek(file, (long)part.offset, SEEK_SET) != 0 ||
        fread(config->begin, 1, part.size, file) != part.size)
        fail(part.file, "ends before the trace does");
    config->end = config->begin + part.size;
    fclose(file);
}

/* Instructions that may still be printed. */
static uint64_t left = UINT64_MAX;

/* Whether to print more events than overflows. */
static int all_events;

/* Whether to compare instructions rather than to print them. */
static int comparing;

/* The digest of what ran, if it is not printed. */
static struct {
    int wanted;
    uint64_t count, sum;
} digest;

static void add_to_digest(uint64_t address)
{
    uint64_t mixed = (address ^ address >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    digest.sum = digest.sum * UINT64_C(0x9e3779b97f4a7c15) + (mixed ^ mixed >> 32);
    digest.count++;
}

/* Statuses for a difference: at a stale return, which is a known error of libipt, or elsewhere. */
enum { status_stale = -1000, status_different };

static void print_address(uint64_t address)
{
    char line[17], *first = line + sizeof line;
    *--first = '\n';
    do {
        *--first = "0123456789abcdef"[address & 15];
        address >>= 4;
    } while (address);
    if (fwrite(first, 1, (size_t)(line + sizeof line - first), stdout) == 0)
        fail("standard output", "can't be written");
}

static void print_error(const struct pt_insn_decoder *decoder, int status)
{
    uint64_t offset = 0;
    pt_insn_get_offset(decoder, &offset);
    printf("# error at %#" PRIx64 ": %s\n", offset, pt_errstr(pt_errcode(status)));
}

/* Consumes pending events; returns the new status. Only an overflow interrupts the stream of addresses. */
static int take_events(struct pt_insn_decoder *decoder, int status)
{
    while (status >= 0 && status & pts_event_pending) {
        struct pt_event event;
        status = pt_insn_event(decoder, &event, sizeof event);
        if (status >= 0 && (all_events || event.type == ptev_overflow))
            print_event(&event);
    }
    return status;
}

/* Decodes from a PSB to an error, or to the end of the trace (-pte_eos). */
static int follow(struct pt_insn_decoder *decoder, int status)
{
    for (;;) {
        status = take_events(decoder, status);
        if (status < 0)
            return status;
        if (status & pts_eos)
            return -pte_eos;
        if (left == 0)
            return -pte_nosync;
        left--;
        struct pt_insn instruction = {.iclass = ptic_error};
        status = pt_insn_next(decoder, &instruction, sizeof instruction);
        /* The instruction may have executed although libipt fails to find the next one. */
        if (instruction.iclass == ptic_error)
            continue;
        enum step step = comparing ? compare(&instruction) : AS_EXPECTED;
        if (step != AS_EXPECTED)
            return step == STALE_RETURN ? status_stale : status_different;
        if (digest.wanted)
            add_to_digest(instruction.ip);
        else if (!comparing)
            print_address(instruction.ip);
    }
}

/* Skips expected instructions before the PSB where decoding resumes. */
static void catch_up(struct pt_insn_decoder *decoder)
{
    uint64_t tsc = 0;
    pt_insn_time(decoder, &tsc, NULL, NULL);
    leave_out_until(tsc);
}

/* Decodes a trace; returns the number of errors. */
static uint64_t decode(struct pt_insn_decoder *decoder)
{
    static int stale;
    uint64_t errors = 0, psb, last_psb = UINT64_MAX;
    for (;;) {
        int status = pt_insn_sync_forward(decoder);
        if (status >= 0 && stale)
            catch_up(decoder);
        if (status >= 0)
            status = follow(decoder, status);
        if (status == -pte_eos)
            return errors;
        stale = status == status_stale;
        if (stale)
            continue;
        if (status == status_different)
            return errors + 1;
        errors++;
        if (left == 0) {
            puts("# error: the limit is reached");
            return errors;
        }
        print_error(decoder, status);
        /* The search for a PSB makes no progress. */
        if (pt_insn_get_sync_offset(decoder, &psb) < 0 || psb == last_psb)
            return errors;
        last_psb = psb;
    }
}

/* Decodes a trace with its code; returns the number of errors. */
static uint64_t decode_trace(struct pt_config *config, struct pt_image *image, char *trace)
{
    load_trace(config, trace);
    struct pt_insn_decoder *decoder = pt_insn_alloc_decoder(config);
    if (!decoder || pt_insn_set_image(decoder, image) < 0)
        fail(trace, "libipt gives no decoder");
    uint64_t errors = decode(decoder);
    pt_insn_free_decoder(decoder);
    free(config->begin);
    return errors;
}

static struct pt_image *new_image(void)
{
    struct pt_image *image = pt_image_alloc(NULL);
    if (!image)
        fail("image", "no memory");
    return image;
}

int main(int count, char **arguments)
{
    struct pt_config config;
    cache = pt_iscache_alloc(NULL);
    if (!cache || pt_iscache_set_limit(cache, UINT64_C(1) << 32) < 0)
        fail("cache", "no memory");
    struct pt_image *image = new_image();
    uint64_t traces = 0, errors = 0;
    pt_config_init(&config);
    for (int index = 1; index < count; index++) {
        char *argument = arguments[index], *value = arguments[index + 1];
        if (value && strcmp(argument, "--raw") == 0)
            add_code(image, arguments[++index]);
        else if (value && strcmp(argument, "--cpu") == 0)
            set_cpu(&config, arguments[++index]);
        else if (value && strcmp(argument, "--limit") == 0)
            left = strtoull(arguments[++index], NULL, 0);
        else if (strcmp(argument, "--events") == 0)
            all_events = 1;
        else if (strcmp(argument, "--digest") == 0)
            digest.wanted = 1;
        else if (strcmp(argument, "--expect") == 0)
            comparing = begin_expected();
        else if (*argument != '-' && errors == 0) {
            errors = decode_trace(&config, image, argument);
            pt_image_free(image);
            image = new_image();
            traces++;
        } else if (*argument == '-')
            fail(argument, "unexpected; see the comment at the top of lab/judges/libipt.c");
    }
    pt_image_free(image);
    if (!traces)
        fail("arguments", "TRACE is missing");
    if (comparing)
        end_expected();
    if (digest.wanted)
        printf("digest %" PRIu64 " %" PRIx64 "\n", digest.count, digest.sum);
    if (fflush(stdout) != 0)
        fail("standard output", "can't be written");
    return errors != 0;
}
