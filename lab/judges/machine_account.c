/* A plugin of QEMU 11.1's whole machines: which instructions each processor begins, in order. `cargo judge arm` reads it.
 *
 * Options: `out=PATH` names the files, as in account.c; `from=ADDRESS` is the instruction that opens the account of all
 * processors; `most=N` ends the account of a processor after so many instructions. In the file of a processor, besides numbers of
 * instructions that begin:
 *   DISCONTINUITY, and five words: its kind (1 interrupt, 2 exception, 4 call of the host), then the low and high halves of the
 *                  address at which the processor would have gone on, and of the one at which it does
 *
 * Run it with a host thread for each processor: else QEMU names the one that a block was translated for. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"

enum { DISCONTINUITY = 0xfffffffd };
enum { PROCESSORS = 64, DISCON_ALL = 7 };

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t plugin_id;

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(struct qemu_plugin_tb *, void *), void *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_discon_cb(plugin_id, int, void (*)(unsigned, int, uint64_t, uint64_t, void *), void *);
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *, size_t);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);

__attribute__((visibility("default"))) int qemu_plugin_version = 7;

static FILE *code, *logs[PROCESSORS];
static uint64_t counts[PROCESSORS], from, most = UINT64_MAX;
static uint32_t instructions;
static atomic_bool is_open;
static pthread_mutex_t translating = PTHREAD_MUTEX_INITIALIZER;

static void put_address(FILE *file, uint64_t address) { put(file, (uint32_t)address), put(file, address >> 32); }

/* The file of a processor, if its account is open. */
static FILE *log_of(unsigned vcpu) {
    if (vcpu >= PROCESSORS) fail("too many processors");
    if (!atomic_load_explicit(&is_open, memory_order_relaxed) || counts[vcpu] == most) return NULL;
    if (!logs[vcpu]) {
        char number[12];
        snprintf(number, sizeof number, "%u", vcpu);
        logs[vcpu] = create(number);
    }
    return logs[vcpu];
}

static void begins(unsigned vcpu, void *number) {
    FILE *log = log_of(vcpu);
    if (log) put(log, (uint32_t)(uintptr_t)number), counts[vcpu]++;
}

static void opens(unsigned vcpu, void *number) {
    is_open = true;
    begins(vcpu, number);
}

static void breaks(unsigned vcpu, int kind, uint64_t before, uint64_t after, void *data) {
    (void)data;
    FILE *log = log_of(vcpu);
    if (log) put(log, DISCONTINUITY), put(log, kind), put_address(log, before), put_address(log, after);
}

static void translate(struct qemu_plugin_tb *block, void *data) {
    (void)data;
    pthread_mutex_lock(&translating);
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint64_t address = qemu_plugin_insn_vaddr(instruction);
        uint32_t bytes = 0, length = qemu_plugin_insn_size(instruction), number = instructions++;
        if (number == DISCONTINUITY) fail("too many instructions");
        qemu_plugin_insn_data(instruction, &bytes, length < sizeof bytes ? length : sizeof bytes);
        put(code, number), put_address(code, address), put(code, length), put(code, bytes);
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, address == from ? opens : begins, 0, (void *)(uintptr_t)number);
    }
    pthread_mutex_unlock(&translating);
}

static void flush(void *data) {
    (void)data;
    fflush(code);
    for (int vcpu = 0; vcpu < PROCESSORS; vcpu++)
        if (logs[vcpu]) fflush(logs[vcpu]);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const void *info, int count, char **options) {
    (void)info;
    for (int i = 0; i < count; i++) {
        if (!strncmp(options[i], "out=", 4)) base = strdup(options[i] + 4);
        if (!strncmp(options[i], "from=", 5)) from = strtoull(options[i] + 5, NULL, 0);
        if (!strncmp(options[i], "most=", 5)) most = strtoull(options[i] + 5, NULL, 0);
    }
    if (!base || !from) return 1;
    code = create("code");
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate, NULL);
    qemu_plugin_register_vcpu_discon_cb(id, DISCON_ALL, breaks, NULL);
    qemu_plugin_register_atexit_cb(id, flush, NULL);
    return 0;
}
