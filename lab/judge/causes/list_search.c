// case: a search from the begin of a list
// finds: nth
// Asks a linked list for its nth element in a loop over n.
#include <stdio.h>
#include <stdlib.h>

struct node { struct node *next; int value; };

__attribute__((noinline)) static int nth(const struct node *node, int number) {
    while (number-- > 0) node = node->next;
    return node->value;
}

int main(void) {
    struct node *first = 0;
    for (int value = 0; value < 1500; value++) {
        struct node *node = malloc(sizeof *node);
        node->next = first;
        node->value = value;
        first = node;
    }
    long sum = 0;
    for (int number = 0; number < 1500; number++) sum += nth(first, number);
    printf("%ld\n", sum);
    return 0;
}
