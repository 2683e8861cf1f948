//! Tests the library for boards: it compiles for every target, it is small, and its protocol is correct in every state.
//! The enumeration finds every deliberate error.

use std::{fs, path::Path};

use workbench::embedded::{LIBRARY, TARGETS, enumerate, sizes, source, test_parts};

/// Maximum code size of the library, in bytes.
const MOST_CODE: u64 = 4096;

/// A change that breaks the library.
struct Mutant {
    file: &'static str,
    original: &'static str,
    replacement: &'static str,
}

const fn mutant(file: &'static str, original: &'static str, replacement: &'static str) -> Mutant {
    Mutant { file, original, replacement }
}

const MUTANTS: &[Mutant] = &[
    // A repeated interrupt is answered again.
    mutant("sync.c", "    slave->served = request & ~1u;\n    slave->more", "    slave->more"),
    // After a reset, a slave answers a request that it may have answered before.
    mutant(
        "sync.c",
        "slave->served = hodo_look(&slave->h2, &slave->words->request) & ~1u;",
        "slave->served = 0;",
    ),
    // A late acknowledgement is taken for another one.
    mutant("sync.c", "if (answer == master->exchange.number + 1u)", "if (answer != 0)"),
    // A lost interrupt is not raised again.
    mutant(
        "sync.c",
        "if (now - master->raised >= master->retry)",
        "if (now - master->raised > 2 * master->timeout)",
    ),
    // The answer is visible before the clock is read.
    mutant(
        "sync.c",
        "        exchange->sent = slave->clock.read(slave->clock.board);\n        hodo_tell(",
        "        slave->words->acknowledge = slave->served + 1u;\n        exchange->sent = slave->clock.read(slave->clock.board);\n        hodo_tell(",
    ),
    // A number is used twice.
    mutant("sync.c", "    master->next += 2;\n", "    master->next += master->next == 2 ? 0 : 2;\n"),
    // The last free slot counts as two.
    mutant("ring.c", ">= ring->words->slots;", "> ring->words->slots;"),
    // A packet is published before it is written.
    mutant(
        "ring.c",
        "    return slot_at(ring, ring->words->produced) + sizeof(struct hodo_slot);",
        "    return slot_at(ring, ring->words->produced - 1) + sizeof(struct hodo_slot);",
    ),
    // A slot is freed before its packet is read.
    mutant(
        "ring.c",
        "    return at + sizeof *slot;",
        "    ring->words->consumed++;\n    return at + sizeof *slot;",
    ),
];

#[test]
fn it_compiles_for_every_target_and_is_small() {
    let folder = tempfile::tempdir().unwrap();
    for target in TARGETS {
        let sizes = sizes(target, folder.path()).unwrap();
        let code: u64 = sizes.iter().map(|part| part.code).sum();
        println!("{}: {code} bytes of code: {sizes:?}", target.name);
        assert!(code > 0 && code < MOST_CODE, "{}: {code} bytes of code", target.name);
        assert!(sizes.iter().all(|part| part.variables == 0), "{}: {sizes:?}", target.name);
    }
}

#[test]
fn the_protocol_holds_in_every_state() {
    let folder = tempfile::tempdir().unwrap();
    let report = enumerate(&source("hodo"), folder.path()).unwrap();
    println!("{report}");
    assert!(report.starts_with("protocol: ") && report.contains("after an overrun"), "{report}");
}

#[test]
fn handler_platforms_and_oscillators_do_what_they_should() {
    let folder = tempfile::tempdir().unwrap();
    test_parts(folder.path()).unwrap();
}

#[test]
fn the_enumeration_finds_what_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    for (number, mutant) in MUTANTS.iter().enumerate() {
        let library = folder.path().join(number.to_string());
        broken(mutant, &library);
        let found = enumerate(&library, &library).expect_err(mutant.replacement).to_string();
        assert!(found.contains("BROKEN: "), "{number}: {found}");
    }
}

/// Copies the library to `folder` with the change.
fn broken(mutant: &Mutant, folder: &Path) {
    fs::create_dir_all(folder).unwrap();
    let headers = ["port.h", "sync.h", "ring.h", "platform.h"].map(str::to_owned);
    for name in LIBRARY.iter().map(|part| format!("{part}.c")).chain(headers) {
        let text = fs::read_to_string(source("hodo").join(&name)).unwrap();
        let text = if name == mutant.file {
            assert_eq!(text.matches(mutant.original).count(), 1, "{}", mutant.original);
            text.replace(mutant.original, mutant.replacement)
        } else {
            text
        };
        fs::write(folder.join(name), text).unwrap();
    }
}
