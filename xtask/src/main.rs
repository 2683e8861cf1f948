//! The chores of the repository: `cargo xtask CHORE`.
//!
//! ```text
//! setup ──► what the machine needs          fixtures ──► fixtures/
//!   │                                       fuzz     ──► random input against the readers
//!   ├─► demo    two programs recorded and explained
//!   ├─► test    format, lints, tidy, every test
//!   ├─► release the programs as they are shipped
//!   ├─► judge   our whole instruction stream against perf's and the emulator's own count
//!   └─► bench   how fast, in how much memory
//! ```

mod bench;
mod command;
mod demo;
mod fixtures;
mod fuzz;
mod judge;
mod lab;
mod machine;
mod release;
mod resolution;
mod setup;
mod test;
mod tidy;

use std::process::ExitCode;

/// What a chore ends with; the error is a sentence for the person who started it.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// A chore: what to type, what it does, and its entry.
struct Chore {
    name: &'static str,
    help: &'static str,
    run: fn(&[String]) -> Outcome,
}

const CHORES: &[Chore] = &[
    Chore {
        name: "setup",
        help: "install what the other chores need (Debian, Ubuntu); --machine: fetch a machine for --engine machine into \
               the user's cache",
        run: setup::run,
    },
    Chore {
        name: "demo",
        help: "record two small programs, and see what was hidden in them",
        run: demo::run,
    },
    Chore { name: "test", help: "format, lints, tidy, every test; what .ci/run runs", run: test::run },
    Chore {
        name: "judge",
        help: "pt: our streams and totals against perf and the emulator; cases: fixtures/pt against libipt and perf; \
               damage: what is left of damaged recordings, against the truth and perf",
        run: judge::run,
    },
    Chore {
        name: "release",
        help: "build the programs as they are shipped and measured: optimised by what they do on small inputs",
        run: release::run,
    },
    Chore {
        name: "bench",
        help: "pt, ctf, analyses: how fast we record and read, in how much memory",
        run: bench::run,
    },
    Chore {
        name: "lab",
        help: "parallel: how analyses get faster with threads, and when storage is what they wait for",
        run: lab::run,
    },
    Chore {
        name: "resolution",
        help: "how exactly times are known, by the packets that are on",
        run: resolution::run,
    },
    Chore { name: "tidy", help: "check the rules of the house that compilers don't know", run: tidy::run },
    Chore { name: "fixtures", help: "record anew what lies in fixtures/", run: fixtures::run },
    Chore { name: "fuzz", help: "random input against the readers, for a time each", run: fuzz::run },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(chore) = arguments.first().and_then(|name| CHORES.iter().find(|chore| chore.name == name))
    else {
        eprintln!("usage: cargo xtask CHORE [ARGUMENTS]\n");
        for chore in CHORES {
            eprintln!("  {:10} {}", chore.name, chore.help);
        }
        let asked = arguments.first().is_some_and(|name| name == "--help" || name == "-h");
        return if asked { ExitCode::SUCCESS } else { ExitCode::from(2) };
    };
    match (chore.run)(&arguments[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {}: {error}", chore.name);
            ExitCode::FAILURE
        }
    }
}
