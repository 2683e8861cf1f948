/* QEMU's `virt` machine, RISC-V: H1 is a byte sent to its UART, through the PLIC; its CLINT provides ticks.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "../board.h"
#include "../oscillator.h"

#define RAM 0x80000000ul
#define UART ((volatile uint8_t *)0x10000000ul)
#define UART_IRQ 10u
#define PLIC 0x0c000000ul
#define MTIMECMP (*(volatile uint64_t *)0x02004000ul)
#define MTIME (*(volatile uint64_t *)0x0200bff8ul)
#define MTIME_MHZ 10u
#define WORD(address) (*(volatile uint32_t *)(address))

#define MIE_TIMER (1ul << 7)
#define MIE_EXTERNAL (1ul << 11)
#define MSTATUS_MIE 8ul

static uint64_t tick;

struct board_shared *board_shared(void)
{
    return (struct board_shared *)(RAM + BOARD_SHARED);
}

uint64_t board_raw(void)
{
    uint64_t value;

    /* Without icount, QEMU returns the host's counter. */
    __asm__ volatile("csrr %0, mcycle" : "=r"(value) : : "memory");
    return value;
}

uint64_t board_truth(uint64_t raw)
{
    const struct board_oscillator *oscillator = &board_shared()->oscillator;

    return oscillator->base + oscillator_scale(raw - oscillator->raw_base, oscillator->multiplier);
}

void board_mask(void)
{
    __asm__ volatile("csrc mstatus, %0" : : "r"(MSTATUS_MIE) : "memory");
}

void board_unmask(void)
{
    __asm__ volatile("csrs mstatus, %0" : : "r"(MSTATUS_MIE) : "memory");
}

void board_wait(void)
{
    __asm__ volatile("wfi" : : : "memory");
}

void board_end(void)
{
    __asm__ volatile("csrw mie, zero" : : : "memory");
    for (;;)
        board_wait();
}

void board_start(uint32_t tick_us)
{
    unsigned long enabled = MIE_EXTERNAL;

    UART[1] = 1; /* interrupt at received bytes */
    UART[2] = 1; /* FIFO on */
    WORD(PLIC + 4 * UART_IRQ) = 1;
    WORD(PLIC + 0x2000) = 1u << UART_IRQ;
    WORD(PLIC + 0x200000) = 0;
    tick = (uint64_t)tick_us * MTIME_MHZ;
    if (tick) {
        MTIMECMP = MTIME + tick;
        enabled |= MIE_TIMER;
    }
    __asm__ volatile("csrs mie, %0" : : "r"(enabled));
    board_unmask();
}

/* Called from start.S. */
void board_trap(unsigned long cause);

void board_trap(unsigned long cause)
{
    if (cause == ((1ul << 63) | 7)) {
        /* The next tick must be in the future, even if the host did not run this processor for a long time. */
        uint64_t next = MTIMECMP + tick, now = MTIME;
        MTIMECMP = next > now ? next : now + tick;
        slave_ticked();
    } else if (cause == ((1ul << 63) | 11)) {
        uint32_t claimed = WORD(PLIC + 0x200004);
        if (claimed == UART_IRQ) {
            while (UART[5] & 1)
                (void)UART[0];
            slave_interrupted();
        }
        if (claimed)
            WORD(PLIC + 0x200004) = claimed;
    } else {
        /* A fault: QEMU's monitor shows the program counter. */
        board_end();
    }
    slave_preempted();
}
