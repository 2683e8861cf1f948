/* Compares libipt's stream with the expected one.
 *
 * libipt (2.0.5) does not pop its stack of return addresses at a return with a TIP, while the processor pops
 * one at every return. A later compressed return then uses a stale address. To prove that a difference has
 * this cause, a stack of return addresses is kept here as the processor keeps it: the return is stale if
 * libipt differs right after a return, and the expected address is the one on this stack. libipt is wrong
 * up to the next PSB then.
 */

#ifndef LIBIPT_EXPECT_H
#define LIBIPT_EXPECT_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <intel-pt.h>

/* The result of comparing an instruction. */
enum step { AS_EXPECTED, STALE_RETURN, OTHERWISE };

/* An expected instruction as read from standard input, in native byte order. */
struct expected {
    uint64_t address, time;
};

static struct {
    struct expected next;
    uint64_t index;
    /* Whether standard input has ended. */
    int ended;
    /* Return addresses of open calls, a ring of the last 64. */
    uint64_t returns[64];
    unsigned top, depth;
    /* The last instruction. */
    struct pt_insn last;
    /* The tick at which libipt has just resumed; UINT64_MAX afterwards. */
    uint64_t begun_at;
    uint64_t same, stale, left_out;
} expected;

static void advance(void)
{
    expected.ended = fread(&expected.next, sizeof expected.next, 1, stdin) != 1;
    expected.index++;
}

static int begin_expected(void)
{
    advance();
    expected.index = 0;
    expected.begun_at = UINT64_MAX;
    expected.last.iclass = ptic_error;
    return 1;
}

/* Whether an instruction is `call +0`, with which code reads its own address; it has no return. */
static int calls_next(const struct pt_insn *call)
{
    static const uint8_t call_0[5] = {0xe8, 0, 0, 0, 0};
    return call->size == sizeof call_0 && memcmp(call->raw, call_0, sizeof call_0) == 0;
}

/* Pushes or pops a return address. */
static void count_call(const struct pt_insn *instruction)
{
    if (instruction->iclass == ptic_call && !calls_next(instruction)) {
        expected.top = (expected.top + 1) % 64;
        expected.returns[expected.top] = instruction->ip + instruction->size;
        expected.depth += expected.depth < 64;
    } else if (instruction->iclass == ptic_return && expected.depth > 0) {
        expected.top = (expected.top + 63) % 64;
        expected.depth--;
    }
}

/* Returns the target of the last instruction if it is a return; 0 if it is not, or the target is unknown. */
static uint64_t return_address(void)
{
    return expected.last.iclass == ptic_return ? expected.returns[(expected.top + 1) % 64] : 0;
}

/* Compares libipt's next instruction with the expected one. */
static enum step compare(const struct pt_insn *instruction)
{
    /* Instructions before the PSB may have the same tick. */
    for (; !expected.ended && expected.next.time == expected.begun_at && expected.next.address != instruction->ip;
         advance())
        expected.left_out++;
    expected.begun_at = UINT64_MAX;
    if (expected.ended || expected.next.address != instruction->ip) {
        uint64_t to = return_address();
        expected.last.iclass = ptic_error;
        if (!expected.ended && to != 0 && to == expected.next.address) {
            expected.stale++;
            return STALE_RETURN;
        }
        printf("# difference at instruction %" PRIu64 ": %" PRIx64 " by libipt, %" PRIx64 " expected\n",
               expected.index, instruction->ip, expected.ended ? 0 : expected.next.address);
        return OTHERWISE;
    }
    count_call(instruction);
    expected.last = *instruction;
    expected.same++;
    advance();
    return AS_EXPECTED;
}

/* Skips expected instructions before a tick. The emulated processor's counter ticks once per nanosecond. */
static void leave_out_until(uint64_t tsc)
{
    for (; !expected.ended && expected.next.time < tsc; advance())
        expected.left_out++;
    expected.begun_at = tsc;
    expected.depth = 0;
}

/* Skips the remaining expected instructions, and prints the counts. */
static void end_expected(void)
{
    leave_out_until(UINT64_MAX);
    printf("same %" PRIu64 "\nstale %" PRIu64 "\nleft %" PRIu64 "\n", expected.same, expected.stale,
           expected.left_out);
}

#endif
