/* A service that answers requests. Each request stores a few words in a hash table; now and then an
 * insertion finds the table too full and moves every word to one of twice the size. On average that
 * costs little, so a profile hardly shows it; the request that has to wait for it sees nothing else. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { REQUESTS = 2000, WORDS = 16 };

struct table {
    uint64_t *slots; /* 0 is an empty slot */
    size_t size;     /* a power of two */
    size_t used;
};

static uint64_t state = 1;

/* The next word of a request: never 0, and the same in every run (xorshift64). */
__attribute__((noinline)) static uint64_t next_word(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

__attribute__((noinline)) static void place(uint64_t *slots, size_t size, uint64_t word)
{
    size_t at = (word * 0x9e3779b97f4a7c15u >> 32) & (size - 1);
    while (slots[at] != 0 && slots[at] != word)
        at = (at + 1) & (size - 1);
    slots[at] = word;
}

/* Moves every word to a table of twice the size: the rare slow path. */
__attribute__((noinline)) static void rehash(struct table *table)
{
    size_t size = table->size * 2;
    uint64_t *slots = calloc(size, sizeof *slots);
    if (slots == NULL)
        abort();
    for (size_t at = 0; at < table->size; at++)
        if (table->slots[at] != 0)
            place(slots, size, table->slots[at]);
    free(table->slots);
    table->slots = slots;
    table->size = size;
}

__attribute__((noinline)) static void insert(struct table *table, uint64_t word)
{
    if (table->used * 4 >= table->size * 3)
        rehash(table);
    place(table->slots, table->size, word);
    table->used++;
}

__attribute__((noinline)) static uint64_t answer(uint64_t word)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int byte = 0; byte < 64; byte++)
        hash = (hash ^ (word >> byte & 0xff)) * 0x100000001b3u;
    return hash;
}

__attribute__((noinline)) static uint64_t handle_request(struct table *table)
{
    uint64_t sum = 0;
    for (int i = 0; i < WORDS; i++) {
        uint64_t word = next_word();
        insert(table, word);
        sum += answer(word);
    }
    return sum;
}

int main(void)
{
    struct table table = {calloc(64, sizeof *table.slots), 64, 0};
    uint64_t sum = 0;
    if (table.slots == NULL)
        return 1;
    for (int request = 0; request < REQUESTS; request++)
        sum += handle_request(&table);
    printf("%d requests, %zu words, checksum %016llx\n", REQUESTS, table.used, (unsigned long long)sum);
    free(table.slots);
    return 0;
}
