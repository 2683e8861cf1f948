// T32 code that calls A32 code, with conditional instructions, recursion and system calls; it needs no C library.

static int compare(int one, int other) { return one < other ? -1 : one > other; }

int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

__attribute__((target("arm"), noinline)) int in_arm(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += i * i ^ n;
    return sum;
}

// getpid
static void call(int value) {
    register int r0 asm("r0") = value;
    asm volatile("mov r7, #20\n svc 0" : "+r"(r0)::"r7", "memory");
}

void __attribute__((used)) work(void) {
    int total = 0;
    for (int i = 0; i < 30; i++) {
        total += compare(i & 7, 4) + fib(5) + in_arm(i);
        if (i % 5 == 0) call(total);
    }
}

// exit
asm(".globl _start\n.thumb_func\n_start:\n bl work\n mov r0, #0\n mov r7, #1\n svc 0\n");
