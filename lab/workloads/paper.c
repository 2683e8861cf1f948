/* The programs that Sharma and Dagenais (2016) trace: paper NAME ITERATIONS. Prints the nanoseconds of processor time that
 * the iterations took, and a checksum. ParseInt, Fib, PiSum, Sort, RandMatStat and RandMatMul do what the benchmarks of
 * Julia with these names do. Epsilon is an empty loop, and Omega the same loop with a conditional branch in it: 100
 * iterations are the paper's million passes. Switch and Straight are not from the paper: nothing but indirect jumps to
 * changing targets, and nearly nothing but straight-line code. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t state = 88172645463325252u;

/* The next number, the same in every run (xorshift64). */
static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static double uniform(void)
{
    return (double)(next() >> 11) / 9007199254740992.0;
}

/* Keeps a call where the compiler would make a loop of it. */
__attribute__((noinline, optimize("no-optimize-sibling-calls"))) static uint64_t fact(uint64_t n, uint64_t product)
{
    return n <= 1 ? product : fact(n - 1, product * n);
}

static double tail_fact(void)
{
    uint64_t sum = 0;
    for (uint64_t n = 1; n <= 100; n++)
        sum += fact(n, 1);
    return (double)sum;
}

static double parse_int(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < 100; i++) {
        char text[16];
        uint32_t number = (uint32_t)next();
        snprintf(text, sizeof text, "%x", number);
        sum += strtoul(text, NULL, 16) == number;
    }
    return (double)sum;
}

__attribute__((noinline)) static uint64_t fib(uint64_t n)
{
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static double fib_20(void)
{
    return (double)fib(20);
}

static double pi_sum(void)
{
    double sum = 0;
    for (int k = 1; k <= 10000; k++)
        sum += 1.0 / ((double)k * k);
    return sum;
}

static void quicksort(double *values, long low, long high)
{
    while (low < high) {
        double pivot = values[(low + high) / 2];
        long i = low, j = high;
        while (i <= j) {
            while (values[i] < pivot)
                i++;
            while (values[j] > pivot)
                j--;
            if (i <= j) {
                double swapped = values[i];
                values[i++] = values[j];
                values[j--] = swapped;
            }
        }
        if (low < j)
            quicksort(values, low, j);
        low = i;
    }
}

static double sort(void)
{
    double values[1000];
    for (int i = 0; i < 1000; i++)
        values[i] = uniform();
    quicksort(values, 0, 999);
    return values[500];
}

/* c = a · b, of n × n. */
static void multiply(int n, const double *a, const double *b, double *c)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}

static double rand_mat_mul(void)
{
    enum { N = 40 };
    static double a[N * N], b[N * N], c[N * N];
    for (int i = 0; i < N * N; i++) {
        a[i] = uniform();
        b[i] = uniform();
    }
    multiply(N, a, b, c);
    return c[N + 1];
}

/* The trace of (p' p)^4 for random 5 × 20 matrices, and its spread. */
static double rand_mat_stat(void)
{
    enum { N = 5, TRIALS = 10 };
    double mean = 0, square = 0;
    for (int trial = 0; trial < TRIALS; trial++) {
        double p[N * 4 * N], q[N * N], r[N * N], trace = 0;
        for (int i = 0; i < N * 4 * N; i++)
            p[i] = uniform() + uniform() - 1;
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                q[i * N + j] = 0;
                for (int k = 0; k < 4 * N; k++)
                    q[i * N + j] += p[i * 4 * N + k] * p[j * 4 * N + k];
            }
        multiply(N, q, q, r);
        multiply(N, r, r, q);
        for (int i = 0; i < N; i++)
            trace += q[i * N + i];
        mean += trace / TRIALS;
        square += trace * trace / TRIALS;
    }
    return sqrt(square - mean * mean) / mean;
}

/* Edges by Canny: smoothing, gradients, the ridges of them, and hysteresis from strong ridges to weak ones. */
static double canny(void)
{
    enum { W = 64, H = 64 };
    static uint8_t picture[H][W], edges[H * W];
    static int smooth[H][W], strength[H][W], across[H][W];
    static int open[H * W];
    for (int y = 0; y < H; y++)
        for (int x = 0; x < W; x++)
            picture[y][x] = ((x - 32) * (x - 32) + (y - 32) * (y - 32) < 400 ? 180 : 40) + next() % 16;
    memset(edges, 0, sizeof edges);
    memset(strength, 0, sizeof strength);
    static const int kernel[3] = {1, 2, 1};
    for (int y = 1; y < H - 1; y++)
        for (int x = 1; x < W - 1; x++) {
            int sum = 0;
            for (int j = -1; j <= 1; j++)
                for (int i = -1; i <= 1; i++)
                    sum += kernel[i + 1] * kernel[j + 1] * picture[y + j][x + i];
            smooth[y][x] = sum / 16;
        }
    for (int y = 2; y < H - 2; y++)
        for (int x = 2; x < W - 2; x++) {
            int dx = 0, dy = 0;
            for (int i = -1; i <= 1; i++) {
                dx += kernel[i + 1] * (smooth[y + i][x + 1] - smooth[y + i][x - 1]);
                dy += kernel[i + 1] * (smooth[y + 1][x + i] - smooth[y - 1][x + i]);
            }
            strength[y][x] = abs(dx) + abs(dy);
            int steep = abs(dy) * 5, flat = abs(dx) * 2;
            across[y][x] = steep < flat ? 1 : abs(dx) * 5 < abs(dy) * 2 ? W : (dx < 0) == (dy < 0) ? W + 1 : W - 1;
        }
    int count = 0, marked = 0;
    const int *all = &strength[0][0];
    for (int at = 3 * W; at < (H - 3) * W; at++) {
        int step = (&across[0][0])[at];
        if (all[at] > 120 && all[at] >= all[at - step] && all[at] > all[at + step] && !edges[at]) {
            edges[at] = 1;
            open[count++] = at;
        }
    }
    static const int neighbours[8] = {-W - 1, -W, -W + 1, -1, 1, W - 1, W, W + 1};
    while (count > 0) {
        int at = open[--count];
        marked++;
        for (int i = 0; i < 8; i++) {
            int other = at + neighbours[i];
            if (other >= 3 * W && other < (H - 3) * W && !edges[other] && all[other] > 60) {
                edges[other] = 1;
                open[count++] = other;
            }
        }
    }
    return marked;
}

static double jump_table(void)
{
    static const void *const targets[8] = {&&a, &&b, &&c, &&d, &&e, &&f, &&g, &&h};
    uint64_t at = 1, left = 10000;
#define HOP(label, step)                       \
    label:                                     \
    at = at * 6364136223846793005u + (step);   \
    if (--left == 0)                           \
        return (double)at;                     \
    goto *targets[at >> 61];
    HOP(a, 1) HOP(b, 3) HOP(c, 5) HOP(d, 7) HOP(e, 9) HOP(f, 11) HOP(g, 13) HOP(h, 15)
}

#define TWICE(x) x x
static double straight(void)
{
    uint64_t at = 1;
    for (int i = 0; i < 100; i++) {
        TWICE(TWICE(TWICE(TWICE(TWICE(TWICE(TWICE(TWICE(at = at * 5 + 1; at ^= at >> 3;))))))))
    }
    return (double)at;
}

static double epsilon(void)
{
    for (int i = 0; i < 10000; i++)
        __asm__ volatile("");
    return 0;
}

static double omega(void)
{
    for (int i = 0; i < 10000; i++) {
        __asm__ volatile("");
        if (i & 1)
            __asm__ volatile("nop");
    }
    return 0;
}

static const struct {
    const char *name;
    double (*run)(void);
} programs[] = {
    {"TailFact", tail_fact}, {"ParseInt", parse_int}, {"Fib", fib_20},
    {"RandMatStat", rand_mat_stat}, {"Canny", canny}, {"PiSum", pi_sum},
    {"Sort", sort}, {"RandMatMul", rand_mat_mul}, {"Omega", omega},
    {"Epsilon", epsilon}, {"Switch", jump_table}, {"Straight", straight},
};

int main(int count, char **arguments)
{
    for (size_t i = 0; count == 3 && i < sizeof programs / sizeof *programs; i++) {
        if (strcmp(programs[i].name, arguments[1]) != 0)
            continue;
        double sum = 0;
        struct timespec begin, end;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
        for (long left = atol(arguments[2]); left > 0; left--)
            sum += programs[i].run();
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
        long long took = (end.tv_sec - begin.tv_sec) * 1000000000ll + end.tv_nsec - begin.tv_nsec;
        printf("%lld %g\n", took, sum);
        return 0;
    }
    fprintf(stderr, "usage: paper NAME ITERATIONS\n");
    return 2;
}
