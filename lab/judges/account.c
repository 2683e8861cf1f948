/* A plugin of QEMU's user mode for riscv64, aarch64 and arm: which instructions a program begins, in order. `cargo judge riscv`
 * and `cargo judge arm` read it.
 *
 * Option `out=PATH` names the files, which contain little-endian words of 32 bits:
 *   PATH.code       for each instruction: its number, the low and high half of its address, its length, its bytes
 *   PATH.<vcpu>     numbers of instructions that begin; SYSCALL and the call's number; SIGNAL, and the low and high half of
 *                   the address that the handler's frame returns to
 *
 * Interface version 1 has no registers. The host's rbp has the address of the processor's state, which has the stack pointer
 * at a fixed offset, while translated code calls a function. Signals of arm are not written. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "account.h"

enum { SYSCALL = 0xffffffff, SIGNAL = 0xfffffffe };
enum { THREADS = 256, SIGNALS = 65, INSTRUCTIONS = 1 << 22 };
/* The frame of a handler is at its stack pointer: siginfo, then ucontext with the saved registers. */
enum { SIGINFO = 128 };

/* Numbers of system calls, and offsets: of the stack pointer in the processor's state, of the saved pc and stack pointer in a
 * frame. */
struct target {
    const char *name;
    int64_t rt_sigaction, exit, exit_group;
    size_t sp, saved_pc, saved_sp;
};
static const struct target targets[] = {
    {"riscv64", 134, 93, 94, 2 * 8, SIGINFO + 176, SIGINFO + 176 + 2 * 8},
    {"aarch64", 134, 93, 94, 64 + 31 * 8, SIGINFO + 440, SIGINFO + 432},
    {"arm", -1, 1, 248, 0, 0, 0},
};
static const struct target *target;

struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef uint64_t plugin_id;
struct info {
    const char *target;
    int least, current;
    bool system;
};

void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, void (*)(plugin_id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, void (*)(unsigned, void *), int, void *);
void qemu_plugin_register_vcpu_syscall_cb(plugin_id, void (*)(plugin_id, unsigned, int64_t, uint64_t, uint64_t, uint64_t,
                                                              uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
void qemu_plugin_register_atexit_cb(plugin_id, void (*)(plugin_id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static FILE *code, *logs[THREADS];
static uint64_t handlers[SIGNALS], addresses[INSTRUCTIONS];
static uint32_t instructions;
static pthread_mutex_t translating = PTHREAD_MUTEX_INITIALIZER;

static FILE *log_of(unsigned vcpu) {
    if (vcpu >= THREADS) fail("too many threads");
    if (!logs[vcpu]) {
        char number[12];
        snprintf(number, sizeof number, "%u", vcpu);
        logs[vcpu] = create(number);
    }
    return logs[vcpu];
}

static void begins(unsigned vcpu, void *number) { put(log_of(vcpu), (uint32_t)(uintptr_t)number); }

static bool is_handler(uint64_t address) {
    for (int signal = 1; signal < SIGNALS; signal++)
        if (handlers[signal] == address) return true;
    return false;
}

/* The first instruction of a handler; it may also be called as a function, without a frame. */
__attribute__((used)) static void handler_begins(unsigned vcpu, void *number, const char *state) {
    uint64_t frame = *(uint64_t *)(state + target->sp);
    uint64_t pc = *(uint64_t *)(frame + target->saved_pc), sp = *(uint64_t *)(frame + target->saved_sp);
    /* Another signal came before: its handler has a frame, but did not begin. */
    while (sp > frame && is_handler(pc)) {
        uint64_t next_sp = *(uint64_t *)(sp + target->saved_sp);
        if (next_sp <= sp) break;
        pc = *(uint64_t *)(sp + target->saved_pc);
        frame = sp, sp = next_sp;
    }
    if (sp > frame) {
        FILE *log = log_of(vcpu);
        put(log, SIGNAL), put(log, (uint32_t)pc), put(log, pc >> 32);
    }
    begins(vcpu, number);
}
void handler_entry(unsigned, void *);
__asm__("handler_entry:\n\tmov %rbp, %rdx\n\tjmp handler_begins\n");

static void translate(plugin_id id, struct qemu_plugin_tb *block) {
    (void)id;
    pthread_mutex_lock(&translating);
    for (size_t i = 0; i < qemu_plugin_tb_n_insns(block); i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        uint64_t address = qemu_plugin_insn_vaddr(instruction);
        uint32_t bytes = 0, length = qemu_plugin_insn_size(instruction), number = instructions++;
        if (number == INSTRUCTIONS) fail("too many instructions");
        memcpy(&bytes, qemu_plugin_insn_data(instruction), length < sizeof bytes ? length : sizeof bytes);
        addresses[number] = address;
        put(code, number), put(code, (uint32_t)address), put(code, address >> 32), put(code, length), put(code, bytes);
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, is_handler(address) ? handler_entry : begins, 0,
                                               (void *)(uintptr_t)number);
    }
    pthread_mutex_unlock(&translating);
}

static void flush(plugin_id id, void *data) {
    (void)id, (void)data;
    fflush(code);
    for (int vcpu = 0; vcpu < THREADS; vcpu++)
        if (logs[vcpu]) fflush(logs[vcpu]);
}

static void system_call(plugin_id id, unsigned vcpu, int64_t number, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                        uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
    (void)a3, (void)a4, (void)a5, (void)a6, (void)a7, (void)a8;
    FILE *log = log_of(vcpu);
    put(log, SYSCALL), put(log, number);
    /* A handler that was translated before it was one would be missed. */
    if (number == target->rt_sigaction && a2 && a1 < SIGNALS) {
        uint64_t handler = *(uint64_t *)a2;
        for (uint32_t i = 0; i < instructions; i++)
            if (handler > 1 && addresses[i] == handler && handlers[a1] != handler && !is_handler(handler))
                fprintf(stderr, "the handler %#" PRIx64 " ran before it was one\n", handler);
        handlers[a1] = handler > 1 ? handler : 0;
    }
    if (number == target->exit) fflush(log);
    if (number == target->exit_group) flush(id, NULL);
}

__attribute__((visibility("default"))) int qemu_plugin_install(plugin_id id, const struct info *info, int count,
                                                               char **options) {
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        if (!strcmp(targets[i].name, info->target)) target = &targets[i];
    for (int i = 0; i < count; i++)
        if (!strncmp(options[i], "out=", 4)) base = strdup(options[i] + 4);
    if (!base || !target) return 1;
    code = create("code");
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_vcpu_syscall_cb(id, system_call);
    qemu_plugin_register_atexit_cb(id, flush, NULL);
    return 0;
}
