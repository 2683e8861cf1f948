// case: a hash function that maps all keys to few buckets
// finds: find|strcmp
// The hash of a word is its length.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry { struct entry *next; char key[16]; int count; };
static struct entry *buckets[1024];

static unsigned hash(const char *key) { return strlen(key) % 1024; }

__attribute__((noinline)) static struct entry *find(const char *key) {
    unsigned bucket = hash(key);
    for (struct entry *entry = buckets[bucket]; entry; entry = entry->next)
        if (strcmp(entry->key, key) == 0) return entry;
    struct entry *entry = calloc(1, sizeof *entry);
    strcpy(entry->key, key);
    entry->next = buckets[bucket];
    return buckets[bucket] = entry;
}

int main(void) {
    char key[16];
    for (int round = 0; round < 4; round++)
        for (int number = 0; number < 700; number++) {
            snprintf(key, sizeof key, "word%04d", number * 7919 % 700);
            find(key)->count++;
        }
    printf("%d\n", find("word0001")->count);
    return 0;
}
