/* Calls a function that reads where no memory is. */
__attribute__((noinline)) static int leaf(volatile int *number) { return *number + 1; }
__attribute__((noinline)) static int outer(volatile int *number) { return leaf(number) * 2; }

int main(int count, char **arguments) {
    volatile int number = count;
    return outer(&number) == 4 ? outer(0) : 1;
}
