/* How fast Arm's OpenCSD decodes the trace of one unit, without frames, to ranges of instructions.
 *
 *     gcc -std=c11 -O2 -Wall -Wextra -Werror -o peer-opencsd lab/peers/opencsd.c -lopencsd_c_api  # libopencsd-dev
 *     peer-opencsd [--code FILE@ADDRESS]... [--ete DEVARCH] --registers CONFIG,TRACEID,ID0,ID1,ID2,ID8 TRACE
 *
 * Reads the trace twice in one process, with a new decoder each time, and prints one line of JSON: `bytes`, `cold_ns`,
 * `hot_ns`, `items` (ranges of one pass), `instructions` and `errors`. Numbers are decimal, or hexadecimal with 0x.
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

#include <opencsd/c_api/opencsd_c_api.h>

struct bytes {
    const uint8_t *content;
    uint32_t length;
};

struct code {
    struct bytes bytes;
    uint64_t address;
};

struct counts {
    uint64_t ranges, instructions;
};

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "peer-opencsd: %s: %s\n", what, why);
    exit(2);
}

static struct bytes load(const char *path)
{
    int file = open(path, O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status) != 0)
        fail(path, "can't be read");
    void *content = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (content == MAP_FAILED)
        fail(path, "can't be mapped");
    close(file);
    return (struct bytes){content, (uint32_t)status.st_size};
}

static ocsd_datapath_resp_t take(const void *context, const ocsd_trc_index_t index, const uint8_t source,
                                 const ocsd_generic_trace_elem *element)
{
    struct counts *counts = (struct counts *)(uintptr_t)context;
    (void)index;
    (void)source;
    if (element->elem_type == OCSD_GEN_TRC_ELEM_INSTR_RANGE) {
        counts->ranges++;
        counts->instructions += element->num_instr_range;
    }
    return OCSD_RESP_CONT;
}

/* Decodes the trace. Returns the number of errors. */
static uint64_t decode(struct bytes trace, const char *decoder, const void *config, const struct code *code,
                       int code_count, struct counts *counts)
{
    dcd_tree_handle_t tree = ocsd_create_dcd_tree(OCSD_TRC_SRC_SINGLE, 0);
    unsigned char source;
    if (ocsd_dt_create_decoder(tree, decoder, OCSD_CREATE_FLG_FULL_DECODER, config, &source) != OCSD_OK)
        fail(decoder, "not created");
    for (int index = 0; index < code_count; index++) {
        struct bytes bytes = code[index].bytes;
        if (ocsd_dt_add_buffer_mem_acc(tree, code[index].address, OCSD_MEM_SPACE_ANY, bytes.content,
                                       bytes.length) != OCSD_OK)
            fail("code", "not accepted");
    }
    ocsd_dt_set_gen_elem_outfn(tree, take, counts);
    uint64_t errors = 0;
    uint32_t at = 0;
    while (at < trace.length) {
        uint32_t used = 0;
        ocsd_datapath_resp_t response =
            ocsd_dt_process_data(tree, OCSD_OP_DATA, at, trace.length - at, trace.content + at, &used);
        at += used;
        while (OCSD_DATA_RESP_IS_WAIT(response))
            response = ocsd_dt_process_data(tree, OCSD_OP_FLUSH, 0, 0, NULL, NULL);
        if (OCSD_DATA_RESP_IS_FATAL(response)) {
            errors++;
            ocsd_dt_process_data(tree, OCSD_OP_RESET, 0, 0, NULL, NULL);
            if (used == 0)
                break;
        }
    }
    ocsd_dt_process_data(tree, OCSD_OP_EOT, 0, 0, NULL, NULL);
    ocsd_destroy_dcd_tree(tree);
    return errors;
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

int main(int count, char **arguments)
{
    struct code *code = calloc((size_t)count, sizeof *code);
    int code_count = 0;
    uint32_t registers[6] = {0};
    const char *device_architecture = NULL, *path = NULL;
    if (!code)
        fail("code", "no memory");
    for (int index = 1; index < count; index++) {
        char *word = arguments[index], *value = arguments[index + 1];
        if (strcmp(word, "--code") == 0 && value) {
            char *at = strrchr(value, '@');
            if (!at)
                fail(value, "expected FILE@ADDRESS");
            *at = '\0';
            code[code_count++] = (struct code){load(value), strtoull(at + 1, NULL, 0)};
            index++;
        } else if (strcmp(word, "--registers") == 0 && value) {
            for (int number = 0; number < 6; number++)
                registers[number] = (uint32_t)strtoul(value, &value, 0), value += *value == ',';
            index++;
        } else if (strcmp(word, "--ete") == 0 && value) {
            device_architecture = arguments[++index];
        } else {
            path = word;
        }
    }
    if (!path)
        fail("arguments", "expected the file of a trace");
    ocsd_etmv4_cfg etm = {.reg_configr = registers[0], .reg_traceidr = registers[1], .reg_idr0 = registers[2],
                          .reg_idr1 = registers[3],    .reg_idr2 = registers[4],     .reg_idr8 = registers[5],
                          .arch_ver = ARCH_V8,         .core_prof = profile_CortexA};
    ocsd_ete_cfg ete = {.reg_configr = registers[0], .reg_traceidr = registers[1], .reg_idr0 = registers[2],
                        .reg_idr1 = registers[3],    .reg_idr2 = registers[4],     .reg_idr8 = registers[5],
                        .arch_ver = ARCH_AA64,       .core_prof = profile_CortexA};
    if (device_architecture)
        ete.reg_devarch = (uint32_t)strtoul(device_architecture, NULL, 0);
    ocsd_def_errlog_init(OCSD_ERR_SEV_NONE, 0);
    struct bytes trace = load(path);
    uint64_t times[2], errors = 0;
    struct counts counts;
    for (int pass = 0; pass < 2; pass++) {
        uint64_t begin = now();
        counts = (struct counts){0};
        errors = device_architecture ? decode(trace, OCSD_BUILTIN_DCD_ETE, &ete, code, code_count, &counts)
                                     : decode(trace, OCSD_BUILTIN_DCD_ETMV4I, &etm, code, code_count, &counts);
        times[pass] = now() - begin;
    }
    printf("{\"bytes\":%" PRIu32 ",\"cold_ns\":%" PRIu64 ",\"hot_ns\":%" PRIu64 ",\"items\":%" PRIu64
           ",\"instructions\":%" PRIu64 ",\"errors\":%" PRIu64 "}\n",
           trace.length, times[0], times[1], counts.ranges, counts.instructions, errors);
    return 0;
}
