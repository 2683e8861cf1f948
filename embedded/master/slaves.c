/* H1 and H2 of an emulated board: its UART is a socket, its RAM a file.
 * SPDX-License-Identifier: MIT OR Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "master.h"

/* Maximum time for a slave to start, in milliseconds: 64 of them may start at the same time on one CPU. */
#define PATIENCE 60000

static void pause_ms(void)
{
    const struct timespec millisecond = {0, 1000000};

    nanosleep(&millisecond, 0);
}

static void raise_interrupt(void *board)
{
    const struct slave *slave = board;
    const char byte = 'i';

    /* If the socket is full, interrupts are pending already. */
    (void)!send(slave->socket, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void slave_begin(struct slave *slave, const struct settings *settings)
{
    struct board_shared *shared;
    uint8_t *ram;
    char folder[64], name[32];
    int file = open(slave->ram, O_RDWR | O_CLOEXEC);

    if (file < 0)
        fail("can't open the RAM of a slave", slave->ram);
    ram = mmap(0, BOARD_RAM, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (ram == MAP_FAILED)
        fail("can't map the RAM of a slave", slave->ram);
    close(file);
    shared = (struct board_shared *)(void *)(ram + BOARD_SHARED);
    slave->shared = shared;
    shared->slave = slave->number;
    shared->poll = settings->polling;
    shared->tick_us = settings->tick_us;
    /* Every fourth slave has an urgent task. */
    shared->urgent_ms = slave->number % 4 == 1 ? settings->urgent_ms : 0;
    work_begin(slave);
    slave->oscillator.raw_base = scale.raw_base;
    slave->oscillator.base = scale.base;
    slave->oscillator.multiplier = scale.multiplier;
    shared->oscillator = slave->oscillator;
    shared->ring.slots = BOARD_SLOTS;
    shared->ring.slot_bytes = BOARD_SLOT;
    slave->ring.words = &shared->ring;
    slave->master.words = &shared->sync;
    slave->master.clock.read = clock_raw;
    slave->master.h1.raise = raise_interrupt;
    slave->master.h1.board = slave;
    slave->master.retry = clock_ticks(2000000);
    slave->master.timeout = clock_ticks(200000000);
    hodo_master_begin(&slave->master);
    snprintf(folder, sizeof folder, "slave-%u", slave->number);
    snprintf(name, sizeof name, "slave%u", slave->number);
    trace_folder(settings, folder, "slave.tsdl", "slave", name);
    __sync_synchronize();
    shared->magic = BOARD_MAGIC;
}

void slave_connect(struct slave *slave)
{
    struct sockaddr_un address;
    int tries;

    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    if (strlen(slave->socket_path) >= sizeof address.sun_path)
        fail("the path of a slave's socket is too long", slave->socket_path);
    strcpy(address.sun_path, slave->socket_path);
    slave->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (tries = 0; connect(slave->socket, (const struct sockaddr *)(const void *)&address, sizeof address); tries++) {
        if (tries == PATIENCE)
            fail("no emulator opened the socket of a slave", slave->socket_path);
        pause_ms();
    }
}

void slave_wait(const struct slave *slave)
{
    int tries;

    for (tries = 0; slave->shared->state != BOARD_READY; tries++) {
        if (tries == PATIENCE)
            fail("a slave did not start", slave->socket_path);
        pause_ms();
    }
}

/* Opens the stream file for packets of this start of the slave. */
static void open_stream(struct slave *slave, const struct settings *settings, uint32_t epoch)
{
    char path[LONGEST_PATH + 64];

    if (slave->stream && slave->stream_epoch == epoch)
        return;
    if (slave->stream)
        fclose(slave->stream);
    snprintf(path, sizeof path, "%s/slave-%u/stream-%u", settings->out, slave->number, epoch);
    slave->stream = fopen(path, "ab");
    if (!slave->stream)
        fail("can't write", path);
    slave->stream_epoch = epoch;
}

void slave_drain(struct slave *slave, const struct settings *settings)
{
    const uint8_t *packet;
    struct hodo_slot slot;
    uint32_t epoch = slave->shared->epoch;

    if (epoch != slave->known_epoch) {
        slave->known_epoch = epoch;
        trace_started(clock_raw(0), slave, epoch);
    }
    while ((packet = hodo_ring_peek(&slave->ring, &slot)) != 0) {
        open_stream(slave, settings, slot.epoch);
        if (fwrite(packet, slot.bytes, 1, slave->stream) != 1)
            fail("can't write the packets of a slave; is the disk full?", settings->out);
        hodo_ring_release(&slave->ring);
        slave->packets++;
    }
    if (slave->ring.broken != slave->known_broken) {
        slave->known_broken = slave->ring.broken;
        trace_broken(clock_raw(0), slave, slave->ring.broken);
    }
}

void slave_stop(struct slave *slave, const struct settings *settings)
{
    int tries;

    slave->shared->stop = 1;
    for (tries = 0; tries < 3000 && slave->shared->state != BOARD_STOPPED; tries++) {
        if (tries % 10 == 0)
            raise_interrupt(slave);
        slave_drain(slave, settings);
        pause_ms();
    }
    slave_drain(slave, settings);
    if (slave->stream && fclose(slave->stream))
        fail("can't write the packets of a slave; is the disk full?", settings->out);
    printf("slave %u: exchanges %lu lost %lu packets %lu discarded %u stopped %d\n", slave->number, slave->exchanges,
           slave->lost, slave->packets, slave->shared->discarded, slave->shared->state == BOARD_STOPPED);
}
