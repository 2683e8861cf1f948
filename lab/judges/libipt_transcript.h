/* Lines of libipt_transcript.c: the fields that are valid, of each kind. */

struct section {
    char *file;
    uint64_t offset, size, address;
    uint8_t *bytes;
};

static void print_packet(const struct pt_packet *packet, int status, uint64_t offset, const uint8_t *begin)
{
    printf("packet %d %u/%d to %" PRIu64 ":", packet->type, packet->size, status, offset);
    switch (packet->type) {
    case ppt_tnt_8:
    case ppt_tnt_64:
        printf(" %u %" PRIx64, packet->payload.tnt.bit_size, packet->payload.tnt.payload);
        break;
    case ppt_tip:
    case ppt_fup:
    case ppt_tip_pge:
    case ppt_tip_pgd:
        printf(" %d %" PRIx64, packet->payload.ip.ipc, packet->payload.ip.ip);
        break;
    case ppt_mode:
        if (packet->payload.mode.leaf == pt_mol_exec)
            printf(" exec %u %u", packet->payload.mode.bits.exec.csl, packet->payload.mode.bits.exec.csd);
        else
            printf(" tsx %u %u", packet->payload.mode.bits.tsx.intx, packet->payload.mode.bits.tsx.abrt);
        break;
    case ppt_pip:
        printf(" %" PRIx64 " %u", packet->payload.pip.cr3, packet->payload.pip.nr);
        break;
    case ppt_tsc:
    case ppt_cyc:
    case ppt_vmcs:
    case ppt_mnt:
        printf(" %" PRIx64, packet->payload.tsc.tsc);
        break;
    case ppt_cbr:
    case ppt_mtc:
        printf(" %u", packet->payload.cbr.ratio);
        break;
    case ppt_tma:
        printf(" %u %u", packet->payload.tma.ctc, packet->payload.tma.fc);
        break;
    case ppt_exstop:
        printf(" %u", packet->payload.exstop.ip);
        break;
    case ppt_mwait:
        printf(" %x %x", packet->payload.mwait.hints, packet->payload.mwait.ext);
        break;
    case ppt_pwre:
        printf(" %u %u %u", packet->payload.pwre.state, packet->payload.pwre.sub_state, packet->payload.pwre.hw);
        break;
    case ppt_pwrx:
        printf(" %u %u %u%u%u", packet->payload.pwrx.last, packet->payload.pwrx.deepest,
               packet->payload.pwrx.interrupt, packet->payload.pwrx.store, packet->payload.pwrx.autonomous);
        break;
    case ppt_ptw:
        printf(" %" PRIx64 " %u %u", packet->payload.ptw.payload, packet->payload.ptw.plc, packet->payload.ptw.ip);
        break;
    case ppt_unknown:
        printf(" %td %p", packet->payload.unknown.packet - begin, packet->payload.unknown.priv);
        break;
    default:
        break;
    }
    puts("");
}

static void print_variant(const struct pt_event *event)
{
    switch (event->type) {
    case ptev_enabled:
        printf("enabled %" PRIx64 " %u", event->variant.enabled.ip, event->variant.enabled.resumed);
        break;
    case ptev_async_disabled:
        printf("from %" PRIx64, event->variant.async_disabled.at);
        if (!event->ip_suppressed)
            printf(" to %" PRIx64, event->variant.async_disabled.ip);
        break;
    case ptev_async_branch:
        printf("from %" PRIx64, event->variant.async_branch.from);
        if (!event->ip_suppressed)
            printf(" to %" PRIx64, event->variant.async_branch.to);
        break;
    case ptev_paging:
        printf("cr3 %" PRIx64 " %u", event->variant.paging.cr3, event->variant.paging.non_root);
        break;
    case ptev_async_paging:
        printf("cr3 %" PRIx64 " %u", event->variant.async_paging.cr3, event->variant.async_paging.non_root);
        if (!event->ip_suppressed)
            printf(" ip %" PRIx64, event->variant.async_paging.ip);
        break;
    case ptev_disabled:
    case ptev_overflow:
    case ptev_exstop:
    case ptev_tick:
        if (!event->ip_suppressed)
            printf("ip %" PRIx64, event->variant.disabled.ip);
        break;
    case ptev_exec_mode:
        printf("mode %d", event->variant.exec_mode.mode);
        if (!event->ip_suppressed)
            printf(" ip %" PRIx64, event->variant.exec_mode.ip);
        break;
    case ptev_tsx:
        printf("tsx %u %u", event->variant.tsx.speculative, event->variant.tsx.aborted);
        if (!event->ip_suppressed)
            printf(" ip %" PRIx64, event->variant.tsx.ip);
        break;
    case ptev_vmcs:
        printf("vmcs %" PRIx64, event->variant.vmcs.base);
        break;
    case ptev_async_vmcs:
        printf("vmcs %" PRIx64, event->variant.async_vmcs.base);
        if (!event->ip_suppressed)
            printf(" ip %" PRIx64, event->variant.async_vmcs.ip);
        break;
    case ptev_mwait:
        printf("mwait %x %x", event->variant.mwait.hints, event->variant.mwait.ext);
        if (!event->ip_suppressed)
            printf(" ip %" PRIx64, event->variant.mwait.ip);
        break;
    case ptev_pwre:
        printf("pwre %u %u %u", event->variant.pwre.state, event->variant.pwre.sub_state, event->variant.pwre.hw);
        break;
    case ptev_pwrx:
        printf("pwrx %u %u %u%u%u", event->variant.pwrx.last, event->variant.pwrx.deepest,
               event->variant.pwrx.interrupt, event->variant.pwrx.store, event->variant.pwrx.autonomous);
        break;
    case ptev_ptwrite:
        printf("ptwrite %u %" PRIx64, event->variant.ptwrite.size, event->variant.ptwrite.payload);
        if (!event->ip_suppressed)
            printf(" ip %" PRIx64, event->variant.ptwrite.ip);
        break;
    case ptev_cbr:
        printf("cbr %u", event->variant.cbr.ratio);
        break;
    case ptev_mnt:
        printf("mnt %" PRIx64, event->variant.mnt.payload);
        break;
    case ptev_stop:
        break;
    }
}

static void print_event(const struct pt_event *event)
{
    printf("%d %u%u%u %" PRIu64 " %u %u ", event->type, event->ip_suppressed, event->status_update, event->has_tsc,
           event->tsc, event->lost_mtc, event->lost_cyc);
    print_variant(event);
    puts("");
}

static void print_raw(const uint8_t *raw, unsigned size)
{
    for (unsigned index = 0; index < size; index++)
        printf("%02x", raw[index]);
}

static void print_instruction(const struct pt_insn *instruction, int status)
{
    printf("instruction %d %" PRIx64 " mode %d class %d", status, instruction->ip, instruction->mode,
           instruction->iclass);
    /* Of an instruction that could not be read, only address and mode are valid. */
    if (instruction->iclass != ptic_error) {
        printf(" isid %d flags %u%u ", instruction->isid, instruction->speculative, instruction->truncated);
        print_raw(instruction->raw, instruction->size);
    }
    puts("");
}

static void print_block(const struct pt_block *block, int status)
{
    printf("block %d %" PRIx64 "-%" PRIx64 " isid %d mode %d class %d count %u flags %u%u ", status, block->ip,
           block->end_ip, block->isid, block->mode, block->iclass, block->ninsn, block->speculative, block->truncated);
    if (block->truncated)
        print_raw(block->raw, block->size);
    puts("");
}
