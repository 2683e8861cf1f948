"""Finds the intervals between two markers in one pass over the instructions of `hodo script --insns --fields tid,insn`.

    deltas.py FROM TO nested|first|last < lines

Prints a line per interval, by thread in order of begin: thread, number of instructions before it, number of
instructions in it, how it ended. This simple reference shares only the definitions with the judged program.
"""

import functools
import sys

PREFIXES = {"lock", "rep", "repe", "repz", "repne", "repnz", "bnd", "notrack"}


def operands(text):
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def read(marker):
    """Returns the alternatives of a marker, each a list of (mnemonic, operands)."""
    alternatives = []
    for alternative in marker.split("|"):
        sequence = []
        for instruction in alternative.split(";"):
            mnemonic, _, rest = instruction.strip().partition(" ")
            sequence.append((mnemonic, operands(rest)))
        alternatives.append(sequence)
    return alternatives


def parts(instruction):
    words = instruction.split()
    while words[0] in PREFIXES and len(words) > 1:
        words = words[1:]
    return words[0], operands(" ".join(words[1:]))


def fits(pattern, instruction):
    (name, wanted), (own, has) = pattern, instruction
    if own != name and not (own[:-1] == name and own[-1] in "bwlq"):
        return False
    if not wanted:
        return True
    return len(wanted) == len(has) and all(want in ("*", text) for want, text in zip(wanted, has))


def ending(marker):
    """Returns whether the last instructions of a thread match the marker, as a function of their texts."""
    alternatives = read(marker)

    @functools.cache
    def ends(*last):
        for sequence in alternatives:
            if len(last) >= len(sequence) and all(map(fits, sequence, map(parts, last[-len(sequence):]))):
                return True
        return False

    return ends, max(map(len, alternatives))


def main():
    (begins, longest_begin), (finishes, longest_finish) = map(ending, sys.argv[1:3])
    nesting, longest = sys.argv[3], max(longest_begin, longest_finish)
    threads, thread = {}, None
    for line in sys.stdin:
        line = line.rstrip("\n")
        if line.startswith("# gap"):
            if thread is not None:
                of = threads[thread]
                of["last"] = []
                of["found"] += [(begin, of["count"] - begin, "gap") for begin in of["open"]]
                of["open"] = []
            continue
        tid, instruction = line.split(" ", 1)
        thread = tid
        of = threads.setdefault(tid, {"count": 0, "last": [], "open": [], "found": []})
        of["count"] += 1
        of["last"] = (of["last"] + [instruction])[-longest:]
        if finishes(*of["last"]) and of["open"]:
            begin = of["open"].pop()
            of["found"].append((begin, of["count"] - begin, "returned"))
        if begins(*of["last"]):
            if nesting == "nested" or not of["open"]:
                of["open"].append(of["count"])
            elif nesting == "last":
                of["open"] = [of["count"]]
    for tid, of in threads.items():
        of["found"] += [(begin, of["count"] - begin, "cut") for begin in of["open"]]
        for begin, delta, how in sorted(of["found"], key=lambda one: (one[0], -one[1])):
            print(tid, begin, delta, how)


main()
