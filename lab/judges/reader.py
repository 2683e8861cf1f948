#!/usr/bin/env python3
"""Draws sentences and names from the doc comments of the crates, for a reader to judge.

usage: reader.py SEED [COUNT]

The draw is a function of the seed and the sources. A sentence or a name whose meaning is not clear at first reading is
rewritten, and the draw repeated with the next seed, until two draws in a row pass.
"""

import random
import re
import subprocess
import sys

ITEM = re.compile(
    r"^\s*(?:pub(?:\([a-z]+\))? )?(?:const )?(?:unsafe )?(?:fn|struct|enum|trait|type|const|static|mod) (\w+)"
)


def documented(path):
    """Doc comments of a file, each as (line, text, name of the item); the name is None of a module's own."""
    text, begin = [], 0
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            comment = re.match(r"^\s*//([/!]) ?(.*)$", line)
            if comment:
                begin = begin or number
                text.append(comment[2])
                continue
            if text and not line.strip().startswith("#["):
                item = ITEM.match(line)
                yield begin, "\n".join(text), item and item[1]
                text, begin = [], 0


def sentences(text):
    """The sentences of a doc comment, without code, pictures and lists of errors."""
    text = re.sub(r"```.*?(```|$)", "", text, flags=re.S)
    for paragraph in re.split(r"\n\s*\n|\n(?=[*#|-])", text):
        joined = " ".join(paragraph.split())
        yield from (part for part in re.split(r"(?<=[.:?]) (?=[A-Z`])", joined) if len(part) > 30)


def main():
    seed, count = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 10
    files = subprocess.run(["git", "ls-files", "crates"], capture_output=True, text=True, check=True).stdout.split()
    said, names = [], []
    for path in files:
        if not path.endswith(".rs") or "/tests/" in path:
            continue
        for line, text, name in documented(path):
            said.extend((path, line, sentence) for sentence in sentences(text))
            if name and not name.startswith("_"):
                names.append((path, line, name))
    draw = random.Random(seed)
    print(f"seed {seed}: of {len(said)} sentences and {len(names)} names")
    for path, line, what in draw.sample(said, count) + draw.sample(names, count):
        print(f"{path}:{line}: {what}")


main()
