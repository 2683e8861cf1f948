/* Prints libipt's events, one per line, in the words of `hodo script`.
 *
 * Omits status updates (the state where decoding begins), and events that `hodo script` does not have: ticks,
 * and maintenance packets.
 */

#ifndef LIBIPT_EVENTS_H
#define LIBIPT_EVENTS_H

#include <inttypes.h>
#include <stdio.h>

#include <intel-pt.h>

static void print_at(const struct pt_event *event, const char *before, uint64_t ip)
{
    if (!event->ip_suppressed)
        printf("%s%" PRIx64, before, ip);
    putchar('\n');
}

static void print_flow_event(const struct pt_event *event)
{
    switch (event->type) {
    case ptev_enabled:
        printf("# tracing on at %" PRIx64 "\n", event->variant.enabled.ip);
        break;
    case ptev_disabled:
        printf("# tracing off");
        print_at(event, ", to ", event->variant.disabled.ip);
        break;
    case ptev_async_disabled:
        printf("# tracing off by interrupt");
        print_at(event, ", to ", event->variant.async_disabled.ip);
        break;
    case ptev_async_branch:
        printf("# interrupt at %" PRIx64, event->variant.async_branch.from);
        print_at(event, ", to ", event->variant.async_branch.to);
        break;
    case ptev_overflow:
        puts("# overflow");
        break;
    case ptev_stop:
        puts("# tracing stopped");
        break;
    case ptev_exec_mode:
        printf("# %d-bit code\n", event->variant.exec_mode.mode == ptem_64bit   ? 64
                                  : event->variant.exec_mode.mode == ptem_32bit ? 32
                                                                                : 16);
        break;
    default:
        break;
    }
}

static void print_paging(uint64_t cr3, int non_root)
{
    printf("# page tables %" PRIx64 "%s\n", cr3, non_root ? " of a guest" : "");
}

static void print_system_event(const struct pt_event *event)
{
    switch (event->type) {
    case ptev_paging:
        print_paging(event->variant.paging.cr3, event->variant.paging.non_root);
        break;
    case ptev_async_paging:
        print_paging(event->variant.async_paging.cr3, event->variant.async_paging.non_root);
        break;
    case ptev_vmcs:
        printf("# VMCS %" PRIx64 "\n", event->variant.vmcs.base);
        break;
    case ptev_async_vmcs:
        printf("# VMCS %" PRIx64 "\n", event->variant.async_vmcs.base);
        break;
    case ptev_tsx:
        printf("# transaction %s", event->variant.tsx.aborted       ? "is aborted"
                                   : event->variant.tsx.speculative ? "begins"
                                                                    : "is committed");
        print_at(event, " at ", event->variant.tsx.ip);
        break;
    case ptev_cbr:
        printf("# core-to-bus ratio %u\n", event->variant.cbr.ratio);
        break;
    default:
        break;
    }
}

static void print_optional_event(const struct pt_event *event)
{
    switch (event->type) {
    case ptev_ptwrite:
        printf("# ptwrite %" PRIx64, event->variant.ptwrite.payload);
        print_at(event, " at ", event->variant.ptwrite.ip);
        break;
    case ptev_exstop:
        printf("# execution stopped");
        print_at(event, " at ", event->variant.exstop.ip);
        break;
    case ptev_mwait:
        printf("# mwait hints %x extensions %x", event->variant.mwait.hints, event->variant.mwait.ext);
        print_at(event, " at ", event->variant.mwait.ip);
        break;
    case ptev_pwre:
        printf("# power entry C%u.%u%s\n", event->variant.pwre.state, event->variant.pwre.sub_state,
               event->variant.pwre.hw ? " by hardware" : "");
        break;
    case ptev_pwrx:
        printf("# power exit last C%u deepest C%u%s%s%s\n", event->variant.pwrx.last,
               event->variant.pwrx.deepest, event->variant.pwrx.interrupt ? " by interrupt" : "",
               event->variant.pwrx.store ? " by store" : "",
               event->variant.pwrx.autonomous ? " by hardware" : "");
        break;
    default:
        break;
    }
}

static void print_event(const struct pt_event *event)
{
    if (event->status_update)
        return;
    print_flow_event(event);
    print_system_event(event);
    print_optional_event(event);
}

#endif
