/* libipt's stream beside the one that is expected.
 *
 * libipt (2.0.5) does not take a call off its stack of return addresses at a return that comes as a TIP,
 * while the processor takes one off at every return. What it has too many it goes back to at some later,
 * compressed return. So that this is not just supposed, calls are counted here as the processor counts
 * them: libipt is wrong in this way where it goes astray right after a return, and what is expected
 * there is where the innermost call that did not return yet returns to. It is lost then up to the next
 * PSB.
 */

#ifndef LIBIPT_EXPECT_H
#define LIBIPT_EXPECT_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <intel-pt.h>

/* How libipt went on. */
enum step { AS_EXPECTED, STALE_RETURN, OTHERWISE };

/* An instruction that is expected, as it comes on standard input: words of the machine. */
struct expected {
    uint64_t address, time;
};

static struct {
    struct expected next;
    uint64_t index;
    /* Standard input has no more. */
    int ended;
    /* Where the calls of the last instructions return to; the last 64 count. */
    uint64_t returns[64];
    unsigned top, depth;
    /* The last instruction. */
    struct pt_insn last;
    /* The tick at which libipt has just begun again; UINT64_MAX where it goes on. */
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

/* Whether an instruction calls what follows it, to learn where it is: `call +0` has no return. */
static int calls_next(const struct pt_insn *call)
{
    static const uint8_t call_0[5] = {0xe8, 0, 0, 0, 0};
    return call->size == sizeof call_0 && memcmp(call->raw, call_0, sizeof call_0) == 0;
}

/* Keeps count of calls. */
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

/* Where the last instruction returned to, if it was a return; 0 where that is not known. */
static uint64_t return_address(void)
{
    return expected.last.iclass == ptic_return ? expected.returns[(expected.top + 1) % 64] : 0;
}

/* Compares libipt's next instruction. */
static enum step compare(const struct pt_insn *instruction)
{
    /* What ran before the PSB may have the same tick. */
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

/* Leaves out what is expected before a tick. The emulated processor's counter ticks once a nanosecond. */
static void leave_out_until(uint64_t tsc)
{
    for (; !expected.ended && expected.next.time < tsc; advance())
        expected.left_out++;
    expected.begun_at = tsc;
    expected.depth = 0;
}

/* Leaves out what is left, and says what was found. */
static void end_expected(void)
{
    leave_out_until(UINT64_MAX);
    printf("same %" PRIu64 "\nstale %" PRIu64 "\nleft %" PRIu64 "\n", expected.same, expected.stale,
           expected.left_out);
}

#endif
