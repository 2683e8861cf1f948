// case: quicksort of sorted numbers
// finds: quick_sort
// The first number divides the others: sorted input is the worst.
#include <stdio.h>

static int numbers[1500];

__attribute__((noinline)) static void quick_sort(int *first, int count) {
    if (count < 2) return;
    int pivot = first[0], low = 0;
    for (int index = 1; index < count; index++)
        if (first[index] < pivot) {
            int swapped = first[++low];
            first[low] = first[index];
            first[index] = swapped;
        }
    first[0] = first[low];
    first[low] = pivot;
    quick_sort(first, low);
    quick_sort(first + low + 1, count - low - 1);
}

int main(void) {
    for (int index = 0; index < 1500; index++) numbers[index] = index;
    quick_sort(numbers, 1500);
    printf("%d\n", numbers[700]);
    return 0;
}
