/* QEMU's `mps2-an385` machine, Cortex-M3: H1 is a byte sent to its UART 0; one timer provides the time, another the
 * ticks.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include "../board.h"
#include "../oscillator.h"

#define RAM 0x21000000u
#define WORD(address) (*(volatile uint32_t *)(address))

#define TIMER0 0x40000000u
#define TIMER1 0x40001000u
#define TIMER_CONTROL 0x0u
#define TIMER_VALUE 0x4u
#define TIMER_RELOAD 0x8u
#define TIMER_CLEAR 0xcu
#define TIMER_MHZ 25u
#define TIMER1_IRQ 9u

#define UART0 0x40004000u
#define UART_DATA 0x0u
#define UART_STATE 0x4u
#define UART_CONTROL 0x8u
#define UART_CLEAR 0xcu
#define UART_DIVIDER 0x10u
#define UART0_IRQ 0u

#define NVIC_ENABLE 0xe000e100u
#define NVIC_DISABLE 0xe000e180u
#define INTERRUPT_CONTROL 0xe000ed04u
#define PENDSV_SET (1u << 28)
#define PENDSV_CLEAR (1u << 27)
#define SYSTEM_PRIORITY_3 0xe000ed20u
#define PENDSV_LAST (0xffu << 16)

extern uint32_t _stack, _bss, _bss_end;

struct board_shared *board_shared(void)
{
    return (struct board_shared *)(RAM + BOARD_SHARED);
}

/* Nanoseconds since reset by the emulator's clock. The 32-bit timer wraps after 171 s, and exchanges with the master
 * read it more often. Called with interrupts masked or not yet enabled. */
uint64_t board_raw(void)
{
    static uint32_t wraps, last;
    uint32_t low = ~WORD(TIMER0 + TIMER_VALUE);

    __asm__ volatile("" : : : "memory");
    if (low < last)
        wraps++;
    last = low;
    return (((uint64_t)wraps << 32) | low) * (1000u / TIMER_MHZ);
}

uint64_t board_truth(uint64_t raw)
{
    return raw;
}

void board_mask(void)
{
    __asm__ volatile("cpsid i" : : : "memory");
}

void board_unmask(void)
{
    __asm__ volatile("cpsie i" : : : "memory");
}

void board_wait(void)
{
    __asm__ volatile("wfi" : : : "memory");
}

void board_end(void)
{
    WORD(NVIC_DISABLE) = 0xffffffffu;
    WORD(INTERRUPT_CONTROL) = PENDSV_CLEAR;
    for (;;)
        board_wait();
}

void board_start(uint32_t tick_us)
{
    WORD(SYSTEM_PRIORITY_3) |= PENDSV_LAST;
    WORD(UART0 + UART_DIVIDER) = 16;
    WORD(UART0 + UART_CONTROL) = 0xa; /* receiver and its interrupt on */
    WORD(NVIC_ENABLE) = 1u << UART0_IRQ;
    if (tick_us) {
        WORD(TIMER1 + TIMER_RELOAD) = tick_us * TIMER_MHZ - 1;
        WORD(TIMER1 + TIMER_VALUE) = tick_us * TIMER_MHZ - 1;
        WORD(TIMER1 + TIMER_CONTROL) = 0x9; /* timer and its interrupt on */
        WORD(NVIC_ENABLE) = 1u << TIMER1_IRQ;
    }
    board_unmask();
}

static void on_uart(void)
{
    board_mask();
    while (WORD(UART0 + UART_STATE) & 2)
        (void)WORD(UART0 + UART_DATA);
    WORD(UART0 + UART_CLEAR) = 2;
    slave_interrupted();
    WORD(INTERRUPT_CONTROL) = PENDSV_SET;
    board_unmask();
}

static void on_timer(void)
{
    board_mask();
    WORD(TIMER1 + TIMER_CLEAR) = 1;
    slave_ticked();
    WORD(INTERRUPT_CONTROL) = PENDSV_SET;
    board_unmask();
}

/* Has the lowest priority, so it runs when no other interrupt is pending. */
static void on_pendsv(void)
{
    board_mask();
    slave_preempted();
    board_unmask();
}

/* A fault: QEMU's monitor shows the program counter. */
static void on_fault(void)
{
    board_end();
}

static void on_reset(void)
{
    uint32_t *word;

    for (word = &_bss; word < &_bss_end; word++)
        *word = 0;
    WORD(TIMER0 + TIMER_RELOAD) = 0xffffffffu;
    WORD(TIMER0 + TIMER_VALUE) = 0xffffffffu;
    WORD(TIMER0 + TIMER_CONTROL) = 1;
    main();
    on_fault();
}

struct vectors {
    uint32_t *stack;
    void (*reset)(void);
    void (*system[14])(void);
    void (*interrupt[16])(void);
};

const struct vectors vectors __attribute__((section(".vectors"), used)) = {
    &_stack,
    on_reset,
    {on_fault, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault,
     on_fault, on_pendsv, on_fault},
    {on_uart, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault, on_fault, on_timer, on_fault,
     on_fault, on_fault, on_fault, on_fault, on_fault},
};
