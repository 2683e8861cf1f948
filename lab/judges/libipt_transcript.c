/* What a libipt.so.2 makes of a trace, through every part of its interface, as text: two libraries are compared by their texts.
 *
 *     gcc -std=c11 -O2 -Wall -Wextra -Werror -o transcript lab/judges/libipt_transcript.c -lipt  # libipt-dev
 *     LD_LIBRARY_PATH=FOLDER transcript < JOBS
 *
 * JOBS has one job a line, of words:
 *     trace=FILE[:OFFSET:SIZE]  the trace
 *     code=FILE:OFFSET:SIZE@ADDRESS  a section, repeatable; a later one cuts an earlier one
 *     through=file|cache|callback  how code gets into the image
 *     cpu=F/M/S  errata=BITS  mtc=N  ratio=EAX/EBX  nominal=N  flags=BITS  filter=A-B stop=A-B
 *     mutations=N  seed=N  as many damaged copies of the trace after it
 *     limit=N  steps after each synchronization, as code may loop without packets
 *     cut=N  the trace's first N bytes only
 *     parts=LETTERS  of p(ackets), q(uery), i(nstructions), b(locks), s(ynchronization),
 *         e(ncoder), a(rguments); all without it
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <intel-pt.h>

#include "libipt_transcript.h"

#include "libipt_arguments.h"

struct job {
    uint8_t *trace;
    size_t size;
    struct section sections[512];
    int section_count;
    enum { THROUGH_FILE, THROUGH_CACHE, THROUGH_CALLBACK } through;
    struct pt_config config;
    uint64_t mutations, seed, limit;
    const char *parts;
};

static void fail(const char *what)
{
    fprintf(stderr, "transcript: %s\n", what);
    fflush(stdout);
    _exit(2);
}

static uint8_t *load(const char *path, uint64_t offset, uint64_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        fail(path);
    uint64_t length = (uint64_t)ftell(file);
    if (offset > length)
        fail(path);
    if (*size > length - offset)
        *size = length - offset;
    uint8_t *bytes = malloc(*size + 1);
    if (!bytes || fseek(file, (long)offset, SEEK_SET) != 0 || fread(bytes, 1, *size, file) != *size)
        fail(path);
    fclose(file);
    return bytes;
}

static int read_memory(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip, void *context)
{
    const struct job *job = context;
    (void)asid;
    for (int index = job->section_count - 1; index >= 0; index--) {
        const struct section *section = &job->sections[index];
        if (ip < section->address || ip - section->address >= section->size)
            continue;
        uint64_t left = section->size - (ip - section->address);
        size = size < left ? size : left;
        memcpy(buffer, section->bytes + (ip - section->address), size);
        return (int)size;
    }
    return -pte_nomap;
}

static int unknown_packet(struct pt_packet_unknown *unknown, const struct pt_config *config, const uint8_t *pos,
                          void *context)
{
    (void)context;
    printf("unknown at %td\n", pos - config->begin);
    unknown->priv = (void *)0x1234;
    return pos[0] == 2 ? 2 : -pte_bad_opc;
}

static void fill_image(struct pt_image *image, struct pt_image_section_cache *cache, struct job *job)
{
    if (job->through == THROUGH_CALLBACK) {
        pt_image_set_callback(image, read_memory, job);
        return;
    }
    for (int index = 0; index < job->section_count; index++) {
        struct section *section = &job->sections[index];
        int status;
        if (job->through == THROUGH_CACHE) {
            status = pt_iscache_add_file(cache, section->file, section->offset, section->size, section->address);
            printf("cached %d\n", status);
            status = pt_image_add_cached(image, cache, status, NULL);
        } else
            status = pt_image_add_file(image, section->file, section->offset, section->size, NULL, section->address);
        if (status < 0)
            printf("image: %d\n", status);
    }
}

static void packets(const struct pt_config *config)
{
    struct pt_packet_decoder *decoder = pt_pkt_alloc_decoder(config);
    uint64_t offset = 0, last = UINT64_MAX;
    for (;;) {
        int status = pt_pkt_sync_forward(decoder);
        pt_pkt_get_sync_offset(decoder, &offset);
        printf("packets: sync %d at %" PRIu64 "\n", status, offset);
        if (status < 0 || offset == last)
            break;
        last = offset;
        for (;;) {
            struct pt_packet packet;
            memset(&packet, 0, sizeof packet);
            status = pt_pkt_next(decoder, &packet, sizeof packet);
            pt_pkt_get_offset(decoder, &offset);
            if (status < 0) {
                printf("packet error %d at %" PRIu64 "\n", status, offset);
                break;
            }
            print_packet(&packet, status, offset, config->begin);
        }
    }
    pt_pkt_sync_set(decoder, (uint64_t)(config->end - config->begin));
    for (int count = 0; count < 100; count++) {
        int status = pt_pkt_sync_backward(decoder);
        pt_pkt_get_sync_offset(decoder, &offset);
        printf("packets: back %d at %" PRIu64 "\n", status, offset);
        if (status < 0)
            break;
    }
    pt_pkt_free_decoder(decoder);
}

static void query_state(struct pt_query_decoder *decoder)
{
    uint64_t time = 0, offset = 0;
    uint32_t lost_mtc = 0, lost_cyc = 0, cbr = 0;
    int told = pt_qry_time(decoder, &time, &lost_mtc, &lost_cyc), ratio = pt_qry_core_bus_ratio(decoder, &cbr);
    pt_qry_get_offset(decoder, &offset);
    printf("  at %" PRIu64 " time %d %" PRIu64 " %u %u cbr %d %u\n", offset, told, time, lost_mtc, lost_cyc, ratio, cbr);
}

/* Asks for whatever comes. Returns the last status. */
static int ask(struct pt_query_decoder *decoder, int status, uint64_t limit)
{
    while (status >= 0 && limit--) {
        struct pt_event event;
        uint64_t ip = 0x5555;
        int taken = 7;
        memset(&event, 0, sizeof event);
        if (status & pts_event_pending) {
            status = pt_qry_event(decoder, &event, sizeof event);
            printf("event %d ", status);
            if (status >= 0)
                print_event(&event);
            else
                puts("");
        } else {
            status = pt_qry_cond_branch(decoder, &taken);
            printf("branch %d %d\n", status, taken);
            if (status == -pte_bad_query) {
                status = pt_qry_indirect_branch(decoder, &ip);
                printf("target %d %" PRIx64 "\n", status, ip);
            }
        }
        query_state(decoder);
        if (status >= 0 && status & pts_eos)
            break;
    }
    return status;
}

static void query(const struct pt_config *config, uint64_t limit)
{
    struct pt_query_decoder *decoder = pt_qry_alloc_decoder(config);
    uint64_t offset, last = UINT64_MAX;
    for (;;) {
        uint64_t ip = 0;
        offset = 0;
        int status = pt_qry_sync_forward(decoder, &ip);
        pt_qry_get_sync_offset(decoder, &offset);
        printf("query: sync %d ip %" PRIx64 " at %" PRIu64 "\n", status, status < 0 ? 0 : ip, offset);
        query_state(decoder);
        if (status == -pte_eos || offset == last)
            break;
        last = offset;
        ask(decoder, status, limit);
    }
    pt_qry_free_decoder(decoder);
}

static void instructions_from(struct pt_insn_decoder *decoder, int status, uint64_t limit)
{
    while (limit--) {
        uint64_t offset = 0, time = 0;
        uint32_t lost_mtc = 0, lost_cyc = 0;
        struct pt_asid asid = {.size = sizeof asid};
        struct pt_insn instruction;
        struct pt_event event;
        if (status < 0 || status & pts_eos)
            break;
        memset(&event, 0, sizeof event);
        memset(&instruction, 0, sizeof instruction);
        if (status & pts_event_pending) {
            status = pt_insn_event(decoder, &event, sizeof event);
            printf("event %d ", status);
            if (status >= 0)
                print_event(&event);
            else
                puts("");
        } else {
            status = pt_insn_next(decoder, &instruction, sizeof instruction);
            print_instruction(&instruction, status);
        }
        int told = pt_insn_time(decoder, &time, &lost_mtc, &lost_cyc);
        pt_insn_get_offset(decoder, &offset);
        pt_insn_asid(decoder, &asid, sizeof asid);
        printf("  at %" PRIu64 " time %d %" PRIu64 " %u %u asid %" PRIx64 " %" PRIx64 "\n", offset, told, time, lost_mtc,
               lost_cyc, asid.cr3, asid.vmcs);
    }
}

static void instructions(const struct pt_config *config, struct job *job, int backward)
{
    struct pt_insn_decoder *decoder = pt_insn_alloc_decoder(config);
    struct pt_image_section_cache *cache = pt_iscache_alloc("cache");
    struct pt_image *image = pt_image_alloc("image");
    uint64_t last = UINT64_MAX;
    fill_image(image, cache, job);
    pt_insn_set_image(decoder, image);
    printf("image %d\n", pt_insn_get_image(decoder) == image);
    for (;;) {
        uint64_t offset = 0;
        int status = backward ? pt_insn_sync_backward(decoder) : pt_insn_sync_forward(decoder);
        pt_insn_get_sync_offset(decoder, &offset);
        printf("instructions: sync %d at %" PRIu64 "\n", status, offset);
        if (status == -pte_eos || offset == last)
            break;
        last = offset;
        instructions_from(decoder, status, backward ? 20 : job->limit);
        /* What was read lies behind: the search goes on before the point. */
        if (backward && (offset == 0 || pt_insn_sync_set(decoder, offset) < 0))
            break;
    }
    pt_insn_free_decoder(decoder);
    pt_image_free(image);
    pt_iscache_free(cache);
}

static void blocks(const struct pt_config *config, struct job *job)
{
    struct pt_block_decoder *decoder = pt_blk_alloc_decoder(config);
    struct pt_image_section_cache *cache = pt_iscache_alloc("cache");
    uint64_t last = UINT64_MAX;
    fill_image(pt_blk_get_image(decoder), cache, job);
    for (;;) {
        uint64_t offset = 0, limit = job->limit;
        int status = pt_blk_sync_forward(decoder);
        pt_blk_get_sync_offset(decoder, &offset);
        printf("blocks: sync %d at %" PRIu64 "\n", status, offset);
        if (status == -pte_eos || offset == last)
            break;
        last = offset;
        while (limit-- && status >= 0 && !(status & pts_eos)) {
            uint64_t time = 0;
            struct pt_block block;
            struct pt_event event;
            memset(&event, 0, sizeof event);
            memset(&block, 0, sizeof block);
            if (status & pts_event_pending) {
                status = pt_blk_event(decoder, &event, sizeof event);
                printf("event %d ", status);
                if (status >= 0)
                    print_event(&event);
                else
                    puts("");
            } else {
                status = pt_blk_next(decoder, &block, sizeof block);
                print_block(&block, status);
                /* Endless loops fill blocks. */
                limit -= limit < block.ninsn / 16 ? limit : block.ninsn / 16;
            }
            pt_blk_get_offset(decoder, &offset);
            int told = pt_blk_time(decoder, &time, NULL, NULL);
            printf("  at %" PRIu64 " time %d %" PRIu64 "\n", offset, told, time);
        }
    }
    pt_blk_free_decoder(decoder);
    pt_iscache_free(cache);
}

/* The other ways to synchronize. */
static void synchronization(const struct pt_config *config, struct job *job)
{
    struct pt_query_decoder *decoder = pt_qry_alloc_decoder(config);
    uint64_t end = (uint64_t)(config->end - config->begin), offset, ip = 0;
    for (int count = 0; count < 50; count++) {
        int status = pt_qry_sync_backward(decoder, &ip);
        offset = 0;
        pt_qry_get_sync_offset(decoder, &offset);
        printf("query: back %d at %" PRIu64 "\n", status, offset);
        if (status == -pte_eos)
            break;
        query_state(decoder);
    }
    for (uint64_t at = 0; at <= end + 2; at += at < 40 || at > end - 40 ? 1 : 16 + at / 16) {
        int status = pt_qry_sync_set(decoder, at & 1 ? &ip : NULL, at);
        printf("query: set %" PRIu64 " %d\n", at, status);
    }
    pt_qry_free_decoder(decoder);
    instructions(config, job, 1);
}

static void run(struct job *job, uint8_t *trace, size_t size)
{
    struct pt_config config = job->config;
    config.begin = trace;
    config.end = trace + size;
    if (strchr(job->parts, 'p'))
        packets(&config);
    if (strchr(job->parts, 'q'))
        query(&config, job->limit);
    if (strchr(job->parts, 'i'))
        instructions(&config, job, 0);
    if (strchr(job->parts, 'b'))
        blocks(&config, job);
    if (strchr(job->parts, 's'))
        synchronization(&config, job);
    if (strchr(job->parts, 'e'))
        encoder(&config, job->seed);
    if (strchr(job->parts, 'a')) {
        errata();
        null_arguments(&config);
        if (job->section_count)
            images(&job->sections[0]);
    }
}

/* Runs in a process of its own: a library may crash, or search for ever. */
static void run_apart(struct job *job, uint8_t *trace, size_t size)
{
    int status;
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        struct rlimit seconds = {3, 3};
        setrlimit(RLIMIT_CPU, &seconds);
        run(job, trace, size);
        fflush(stdout);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0)
        fail("no process");
    if (status)
        printf("\ncrashed %d\n", status);
}

/* Damages a copy of the trace: bytes changed, left out, or repeated. */
static size_t mutate(uint8_t *copy, size_t size, uint64_t *state)
{
    uint64_t changes = 1 + next_random(state) % 4;
    while (changes-- && size > 20) {
        size_t at = next_random(state) % size, length = 1 + next_random(state) % 12;
        if (length > size - at)
            length = size - at;
        switch (next_random(state) % 4) {
        case 0:
            copy[at] ^= (uint8_t)(1u << next_random(state) % 8);
            break;
        case 1:
            copy[at] = (uint8_t)next_random(state);
            break;
        case 2:
            memmove(copy + at, copy + at + length, size - at - length);
            size -= length;
            break;
        default:
            memmove(copy + at, copy + next_random(state) % (size - length), length);
        }
    }
    return size;
}

static void run_all(struct job *job)
{
    uint64_t state = job->seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    run_apart(job, job->trace, job->size);
    for (uint64_t index = 0; index < job->mutations; index++) {
        uint8_t *copy = malloc(job->size + 1);
        if (!copy)
            fail("no memory");
        memcpy(copy, job->trace, job->size);
        printf("mutation %" PRIu64 "\n", index);
        run_apart(job, copy, mutate(copy, job->size, &state));
        free(copy);
    }
}

/* FILE[:OFFSET:SIZE[@ADDRESS]] */
static struct section parse_section(char *text)
{
    struct section section = {.size = UINT64_MAX};
    char *at = strrchr(text, '@');
    if (at) {
        *at = '\0';
        section.address = strtoull(at + 1, NULL, 0);
    }
    char *size = strrchr(text, ':');
    if (size) {
        *size = '\0';
        char *offset = strrchr(text, ':');
        if (!offset)
            fail(text);
        *offset = '\0';
        section.offset = strtoull(offset + 1, NULL, 0);
        section.size = strtoull(size + 1, NULL, 0);
    }
    section.file = strdup(text);
    uint64_t length = section.size;
    section.bytes = load(text, section.offset, &length);
    section.size = length;
    return section;
}

static void add_filter(struct job *job, char *range, uint64_t kind)
{
    struct pt_conf_addr_filter *filter = &job->config.addr_filter;
    int index = filter->config.addr_cfg != 0;
    uint64_t *bounds = index ? &filter->addr1_a : &filter->addr0_a;
    bounds[0] = strtoull(range, &range, 0);
    bounds[1] = strtoull(range + 1, NULL, 0);
    filter->config.addr_cfg |= kind << 4 * index;
}

static void set(struct job *job, char *word)
{
    char *value = strchr(word, '=');
    if (!value)
        fail(word);
    *value++ = '\0';
    uint64_t number = strtoull(value, NULL, 0);
    struct pt_config *config = &job->config;
    if (!strcmp(word, "trace")) {
        struct section part = parse_section(value);
        job->trace = part.bytes;
        job->size = part.size;
        free(part.file);
    } else if (!strcmp(word, "code") && job->section_count < 512)
        job->sections[job->section_count++] = parse_section(value);
    else if (!strcmp(word, "through"))
        job->through = value[0] == 'f' ? THROUGH_FILE : value[1] == 'a' && value[2] == 'c' ? THROUGH_CACHE : THROUGH_CALLBACK;
    else if (!strcmp(word, "cpu")) {
        unsigned family = 0, model = 0, stepping = 0;
        sscanf(value, "%u/%u/%u", &family, &model, &stepping);
        config->cpu = (struct pt_cpu){pcv_intel, (uint16_t)family, (uint8_t)model, (uint8_t)stepping};
        pt_cpu_errata(&config->errata, &config->cpu);
    } else if (!strcmp(word, "errata"))
        memcpy(&config->errata, &(uint32_t){(uint32_t)number}, 4);
    else if (!strcmp(word, "mtc"))
        config->mtc_freq = (uint8_t)number;
    else if (!strcmp(word, "ratio"))
        sscanf(value, "%u/%u", &config->cpuid_0x15_eax, &config->cpuid_0x15_ebx);
    else if (!strcmp(word, "nominal"))
        config->nom_freq = (uint8_t)number;
    else if (!strcmp(word, "flags"))
        memcpy(&config->flags, &(uint32_t){(uint32_t)number}, 4);
    else if (!strcmp(word, "filter"))
        add_filter(job, value, 1);
    else if (!strcmp(word, "stop"))
        add_filter(job, value, 2);
    else if (!strcmp(word, "callback"))
        config->decode.callback = unknown_packet;
    else if (!strcmp(word, "mutations"))
        job->mutations = number;
    else if (!strcmp(word, "seed"))
        job->seed = number;
    else if (!strcmp(word, "limit"))
        job->limit = number;
    else if (!strcmp(word, "cut"))
        job->size = number < job->size ? number : job->size;
    else if (!strcmp(word, "parts"))
        job->parts = value;
    else
        fail(word);
}

int main(void)
{
    static char line[1 << 20];
    while (fgets(line, sizeof line, stdin)) {
        static struct job job;
        printf("job %s", line);
        memset(&job, 0, sizeof job);
        pt_config_init(&job.config);
        job.limit = 5000;
        job.parts = "pqibsea";
        for (char *word = strtok(line, " \n"); word; word = strtok(NULL, " \n"))
            set(&job, word);
        if (!job.trace)
            fail("a job without trace");
        run_all(&job);
        free(job.trace);
        for (int index = 0; index < job.section_count; index++) {
            free(job.sections[index].file);
            free(job.sections[index].bytes);
        }
    }
    return fflush(stdout) != 0;
}
