/* The reference codec of E-Trace (riscv-trace-spec, te_codec): decodes packets whose fields `cargo judge riscv --reference` wrote.
 *
 * usage: te_codec PACKETS CODE DECODED
 *   PACKETS  words of 64 bits, little-endian: the sizes of return stack, cache and predictor, iaddress_lsb, then records
 *   CODE     for each instruction, its address and its bytes in a word
 *   DECODED  the address of each instruction that ran, one a line */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decoder-algorithm-public.h"
#include "te-codec-utilities.h"

/* As in lab/riscv/src/codec.rs. */
struct record {
    uint8_t format, subformat, extension, prediction, unused[4];
    uint64_t address, branches, map, flags, depth, branch, privilege, cause, interrupt, value, enabled, status,
        options, index;
};

struct instruction {
    uint64_t address, bytes;
};

static struct instruction *code;
static size_t instructions;
static FILE *decoded;

static void *read_file(const char *name, size_t *size) {
    FILE *file = fopen(name, "rb");
    if (!file) perror(name), exit(2);
    fseek(file, 0, SEEK_END);
    *size = ftell(file);
    rewind(file);
    void *bytes = malloc(*size + 1);
    if (fread(bytes, 1, *size, file) != *size) perror(name), exit(2);
    fclose(file);
    return bytes;
}

static int compare(const void *key, const void *other) {
    uint64_t a = *(const uint64_t *)key, b = ((const struct instruction *)other)->address;
    return a < b ? -1 : a > b;
}

static unsigned get_instruction(void *const user, const te_address_t address, rv_inst *const instruction) {
    (void)user;
    uint64_t key = address;
    struct instruction *found = bsearch(&key, code, instructions, sizeof *code, compare);
    if (!found) fprintf(stderr, "no instruction at %" PRIx64 "\n", key), exit(3);
    *instruction = found->bytes;
    return (found->bytes & 3) == 3 ? 4 : 2;
}

static void advance(void *const user, const te_address_t old, const te_address_t new,
                    const te_decoded_instruction_t *const instruction) {
    (void)user, (void)old, (void)instruction;
    fprintf(decoded, "%" PRIx64 "\n", (uint64_t)new);
}

static te_inst_t packet_of(const struct record *record) {
    te_inst_t packet;
    memset(&packet, 0, sizeof packet);
    packet.format = record->format;
    packet.subformat = record->subformat;
    packet.address = record->address;
    packet.branches = record->branches;
    packet.branch_map = record->map;
    packet.notify = record->flags & 1;
    packet.updiscon = record->flags >> 1 & 1;
    packet.irfail = record->flags >> 2 & 1;
    packet.irdepth = record->depth;
    packet.branch = record->branch;
    packet.privilege = record->privilege;
    packet.ecause = record->cause;
    packet.interrupt = record->interrupt;
    packet.tvalepc = record->value;
    packet.support.i_enable = record->enabled;
    packet.support.qual_status = record->status;
    packet.support.options.implicit_return = record->options & 1;
    packet.support.options.full_address = record->options >> 1 & 1;
    packet.support.options.jump_target_cache = record->options >> 2 & 1;
    packet.support.options.branch_prediction = record->options >> 3 & 1;
    if (record->format == TE_INST_FORMAT_0_EXTN) {
        packet.extension = record->extension;
        if (record->extension == TE_INST_EXTN_JUMP_TARGET_CACHE)
            packet.u.jtc.index = record->index;
        else {
            packet.branches = 0;
            packet.u.bpred.correct_predictions = record->branches;
            packet.u.bpred.branch_fmt = record->prediction;
        }
    }
    return packet;
}

int main(int count, char **arguments) {
    if (count != 4) return 2;
    size_t size;
    uint64_t *words = read_file(arguments[1], &size);
    struct record *records = (struct record *)(words + 4);
    size_t packets = (size - 4 * sizeof *words) / sizeof *records;
    code = read_file(arguments[2], &size);
    instructions = size / sizeof *code;
    decoded = fopen(arguments[3], "w");
    if (!decoded) perror(arguments[3]), exit(2);
    te_decoder_state_t *decoder = te_open_trace_decoder(NULL, get_instruction, NULL, advance, NULL, rv64);
    decoder->discovery_response.call_counter_size = 0;
    decoder->discovery_response.return_stack_size = words[0];
    decoder->discovery_response.jump_target_cache_size = words[1];
    decoder->discovery_response.branch_prediction_size = words[2];
    decoder->discovery_response.iaddress_lsb = words[3];
    for (size_t i = 0; i < packets; i++) {
        te_inst_t packet = packet_of(&records[i]);
        te_process_te_inst(decoder, &packet);
        /* The specification forgets predictions at a synchronization, after the branches before it; the codec does not. */
        if (packet.format == TE_INST_FORMAT_3_SYNC && packet.subformat <= TE_INST_SUBFORMAT_EXCEPTION)
            te_initialize_bpred_table(&decoder->bpred);
    }
    fclose(decoded);
    return 0;
}
