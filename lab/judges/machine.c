/* A second judge of an emulated machine's recording: decodes the trace of a virtual processor with Intel's libipt.
 *
 *     gcc -std=c11 -O2 -Wall -Wextra -Werror -o judge-machine lab/judges/machine.c -lipt  # libipt-dev
 *     judge-machine CODE TRACE
 *
 * CODE is the spool's file of code, TRACE its file of one processor's trace (emulator/src/machine/spool.rs). Code is
 * looked up by CR3, which libipt reads from PIP packets; the kernel's half of the addresses is the same in all address
 * spaces. Before a processor runs changed code, the trace has a time after the change: in a TSC packet before the last
 * branch, or in an event (an interrupt, or tracing stops and resumes). The later one determines the code.
 *
 * Prints the number of instructions and the digest of their addresses: digest = digest * 0x9e3779b97f4a7c15 + address.
 * Exit status: 0 if there is no error, 1 if libipt reports one, 2 if a file can't be read.
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <intel-pt.h>

enum { PAGE = 4096, BUCKETS = 1 << 16 };

/* Bytes of a page that change at a time. */
struct change {
    uint64_t time;
    uint32_t offset, size;
    const uint8_t *bytes;
    struct change *next;
};

struct page {
    uint64_t space, number;
    uint8_t bytes[PAGE], known[PAGE];
    struct change *first, **last;
    struct page *next;
};

static struct page *pages[BUCKETS];

/* The latest time that the trace has before the next instruction. */
static uint64_t now;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "judge-machine: %s: %s\n", what, why);
    exit(2);
}

static uint8_t *read_file(const char *name, size_t *size)
{
    FILE *file = fopen(name, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        fail(name, "can't be read");
    *size = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*size + 1);
    if (!bytes || fread(bytes, 1, *size, file) != *size)
        fail(name, "can't be read");
    fclose(file);
    return bytes;
}

static struct page *find(uint64_t space, uint64_t number, int make)
{
    struct page **at = &pages[(space * 31 + number) * 0x9e3779b97f4a7c15u >> 48];
    for (; *at; at = &(*at)->next)
        if ((*at)->space == space && (*at)->number == number)
            return *at;
    if (!make)
        return NULL;
    struct page *page = calloc(1, sizeof *page);
    if (!page)
        fail("memory", "there is not enough");
    page->space = space;
    page->number = number;
    page->last = &page->first;
    return *at = page;
}

/* Adds a piece of code within one page. */
static void learn(struct page *page, uint32_t offset, const uint8_t *bytes, uint32_t size, int changed, uint64_t time)
{
    for (uint32_t i = 0; i < size; i++) {
        if (!page->known[offset + i]) {
            page->known[offset + i] = 1;
            page->bytes[offset + i] = bytes[i];
        }
    }
    if (!changed)
        return;
    struct change *change = malloc(sizeof *change);
    if (!change)
        fail("memory", "there is not enough");
    *change = (struct change){time, offset, size, bytes, NULL};
    *page->last = change;
    page->last = &change->next;
}

/* Reads notes of five words and the code's bytes: processor and change flag, time, address space, address, size. */
static void learn_all(const char *name)
{
    size_t size;
    const uint8_t *at = read_file(name, &size), *end = at + size;
    while (end - at >= 40) {
        uint64_t words[5];
        memcpy(words, at, sizeof words);
        at += sizeof words;
        uint64_t address = words[3], left = words[4];
        if (left > (uint64_t)(end - at))
            break;
        while (left) {
            uint32_t offset = (uint32_t)(address % PAGE);
            uint32_t here = left < PAGE - offset ? (uint32_t)left : PAGE - offset;
            learn(find(words[2], address / PAGE, 1), offset, at, here, words[0] & 1, words[1]);
            at += here;
            address += here;
            left -= here;
        }
    }
}

/* Callback: reads code for libipt. */
static int read_code(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip, void *context)
{
    (void)context;
    uint64_t space = ip >> 63 ? 0 : asid->cr3 & ~(uint64_t)0xfff;
    size_t count = 0;
    while (count < size) {
        uint64_t address = ip + count;
        struct page *page = find(space, address / PAGE, 0);
        uint32_t offset = (uint32_t)(address % PAGE);
        if (!page || !page->known[offset])
            break;
        buffer[count] = page->bytes[offset];
        for (struct change *change = page->first; change; change = change->next)
            if (change->time <= now && offset >= change->offset && offset < change->offset + change->size)
                buffer[count] = change->bytes[offset - change->offset];
        count++;
    }
    return count ? (int)count : -pte_nomap;
}

static void reach(uint64_t time)
{
    if (time > now)
        now = time;
}

/* Consumes pending events; returns the new status. */
static int take_events(struct pt_insn_decoder *decoder, int status)
{
    while (status >= 0 && status & pts_event_pending) {
        struct pt_event event;
        status = pt_insn_event(decoder, &event, sizeof event);
        if (status >= 0 && event.has_tsc)
            reach(event.tsc);
    }
    return status;
}

int main(int count, char **arguments)
{
    if (count != 3)
        fail("usage", "judge-machine CODE TRACE");
    learn_all(arguments[1]);
    struct pt_config config;
    pt_config_init(&config);
    size_t size;
    config.begin = read_file(arguments[2], &size);
    config.end = config.begin + size;
    struct pt_insn_decoder *decoder = pt_insn_alloc_decoder(&config);
    struct pt_image *image = pt_image_alloc(NULL);
    if (!decoder || !image || pt_image_set_callback(image, read_code, NULL) < 0 ||
        pt_insn_set_image(decoder, image) < 0)
        fail("libipt", "can't start");
    uint64_t instructions = 0, digest = 0;
    int status = pt_insn_sync_forward(decoder);
    while (status >= 0) {
        status = take_events(decoder, status);
        if (status < 0 || status & pts_eos)
            break;
        uint64_t time;
        if (pt_insn_time(decoder, &time, NULL, NULL) >= 0)
            reach(time);
        struct pt_insn instruction = {.iclass = ptic_error};
        status = pt_insn_next(decoder, &instruction, sizeof instruction);
        if (instruction.iclass == ptic_error)
            continue;
        instructions++;
        digest = digest * 0x9e3779b97f4a7c15u + instruction.ip;
    }
    printf("%" PRIu64 " %" PRIu64 "\n", instructions, digest);
    if (status >= 0 || status == -pte_eos)
        return 0;
    uint64_t offset = 0, ip = 0;
    pt_insn_get_offset(decoder, &offset);
    struct pt_insn next = {0};
    pt_insn_next(decoder, &next, sizeof next);
    ip = next.ip;
    fprintf(stderr, "libipt: %s at %#" PRIx64 " of the trace, near %#" PRIx64 "\n", pt_errstr(pt_errcode(status)), offset, ip);
    return 1;
}
