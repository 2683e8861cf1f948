// The programs of paper.c that exist in JavaScript: node paper.js NAME ITERATIONS. Prints the nanoseconds of processor
// time that the iterations took, and a checksum.
'use strict';

let seed = 2463534242;

// The next number below 1, the same in every run (xorshift32).
function uniform() {
    seed ^= seed << 13;
    seed ^= seed >>> 17;
    seed ^= seed << 5;
    return (seed >>> 0) / 4294967296;
}

function fact(n, product) {
    return n <= 1 ? product : fact(n - 1, product * n);
}

function fib(n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

function quicksort(values, low, high) {
    while (low < high) {
        const pivot = values[(low + high) >> 1];
        let i = low, j = high;
        while (i <= j) {
            while (values[i] < pivot) i++;
            while (values[j] > pivot) j--;
            if (i <= j) {
                const swapped = values[i];
                values[i++] = values[j];
                values[j--] = swapped;
            }
        }
        if (low < j) quicksort(values, low, j);
        low = i;
    }
}

// c = a · b, of n × n.
function multiply(n, a, b, c) {
    for (let i = 0; i < n; i++)
        for (let j = 0; j < n; j++) {
            let sum = 0;
            for (let k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}

const programs = {
    TailFact() {
        let sum = 0;
        for (let n = 1; n <= 100; n++) sum += fact(n, 1);
        return sum;
    },
    ParseInt() {
        let sum = 0;
        for (let i = 0; i < 100; i++) {
            const number = Math.floor(uniform() * 4294967296);
            sum += parseInt(number.toString(16), 16) === number ? 1 : 0;
        }
        return sum;
    },
    Fib() {
        return fib(20);
    },
    RandMatStat() {
        const N = 5, TRIALS = 10;
        let mean = 0, square = 0;
        for (let trial = 0; trial < TRIALS; trial++) {
            const p = new Float64Array(N * 4 * N), q = new Float64Array(N * N), r = new Float64Array(N * N);
            for (let i = 0; i < p.length; i++) p[i] = uniform() + uniform() - 1;
            for (let i = 0; i < N; i++)
                for (let j = 0; j < N; j++)
                    for (let k = 0; k < 4 * N; k++) q[i * N + j] += p[i * 4 * N + k] * p[j * 4 * N + k];
            multiply(N, q, q, r);
            multiply(N, r, r, q);
            let trace = 0;
            for (let i = 0; i < N; i++) trace += q[i * N + i];
            mean += trace / TRIALS;
            square += trace * trace / TRIALS;
        }
        return Math.sqrt(square - mean * mean) / mean;
    },
    PiSum() {
        let sum = 0;
        for (let k = 1; k <= 10000; k++) sum += 1.0 / (k * k);
        return sum;
    },
    Sort() {
        const values = new Float64Array(1000);
        for (let i = 0; i < values.length; i++) values[i] = uniform();
        quicksort(values, 0, values.length - 1);
        return values[500];
    },
    RandMatMul() {
        const N = 40, a = new Float64Array(N * N), b = new Float64Array(N * N), c = new Float64Array(N * N);
        for (let i = 0; i < a.length; i++) {
            a[i] = uniform();
            b[i] = uniform();
        }
        multiply(N, a, b, c);
        return c[N + 1];
    },
};

const run = programs[process.argv[2]];
let sum = 0;
const begin = process.cpuUsage();
for (let left = Number(process.argv[3]); left > 0; left--) sum += run();
const { user, system } = process.cpuUsage(begin);
console.log((user + system) * 1000, sum);
