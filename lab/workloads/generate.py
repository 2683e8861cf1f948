"""Writes input for the programs that are judged; the same in every run.

usage: generate.py text FILE BYTES   words, for gzip
       generate.py sql FILE ROWS     a database script, for sqlite3
       generate.py c FILE FUNCTIONS  a source file, for gcc
"""

import random
import sys

WORDS = "trace packet branch return call clock thread signal table stream chunk event".split()


def text(random, size):
    """Lines of words and numbers, `size` bytes together."""
    lines, length = [], 0
    while length < size:
        line = " ".join(random.choice(WORDS) + str(random.randrange(1000)) for _ in range(12)) + "\n"
        lines.append(line)
        length += len(line)
    return "".join(lines)[:size]


def sql(random, rows):
    """A table, an index, and queries that sort, join and group."""
    yield "PRAGMA journal_mode = MEMORY; BEGIN;\n"
    yield "CREATE TABLE event (id INTEGER PRIMARY KEY, name TEXT, size INTEGER);\n"
    for _ in range(rows):
        yield f"INSERT INTO event (name, size) VALUES ('{random.choice(WORDS)}', {random.randrange(10000)});\n"
    yield "CREATE INDEX by_size ON event (size); COMMIT;\n"
    yield "SELECT name, count(*), sum(size), avg(size) FROM event GROUP BY name ORDER BY 3 DESC;\n"
    yield "SELECT count(*) FROM event a JOIN event b ON a.size = b.size WHERE a.id < b.id;\n"


def c(random, functions):
    """Functions with loops, switches and calls of earlier ones."""
    yield "#include <stdint.h>\n"
    for n in range(functions):
        yield f"uint32_t f{n}(uint32_t x, const uint32_t *p)\n{{\n    uint32_t y = {random.randrange(1 << 30)}u;\n"
        yield f"    for (uint32_t i = 0; i < (x & {random.randrange(1, 255)}u); i++)\n"
        yield f"        y = (y ^ p[i & 63]) * {random.randrange(1, 1 << 20) | 1}u;\n    switch (y % 7) {{\n"
        for case in range(6):
            operation = random.choice("+-*^|&")
            call = f" + f{random.randrange(n)}(y >> 3, p)" if n and random.random() < 0.5 else ""
            yield f"    case {case}: y = (y {operation} {random.randrange(1 << 16)}u){call}; break;\n"
        yield "    default: break;\n    }\n    return y;\n}\n"


def main():
    _, kind, path, size = sys.argv
    made = {"text": text, "sql": sql, "c": c}[kind](random.Random(1), int(size))
    with open(path, "w", encoding="ascii") as file:
        file.writelines([made] if isinstance(made, str) else made)


main()
