//! The chores of the repository: `cargo xtask CHORE`.
//!
//! ```text
//! setup ──► what the machine needs          fixtures ──► fixtures/
//!   │                                       fuzz     ──► random input against the readers
//!   ├─► demo    two programs recorded and explained
//!   ├─► web     the page of `hodo view`
//!   ├─► test    format, lints, tidy, every test
//!   └─► release the programs as they are shipped, and packages of them
//! ```

mod demo;
mod demo_board;
mod demo_slave;
mod fixtures;
mod fuzz;
mod packages;
mod python;
mod release;
mod test;
mod tidy;

use std::{os::unix::process::CommandExt, process::ExitCode};

use workbench::{
    Outcome, board, command, machine,
    setup::{self, Need},
    web, workloads,
};

/// A chore: its name, its help text, and its function.
struct Chore {
    name: &'static str,
    help: &'static str,
    run: fn(&[String]) -> Outcome,
}

const CHORES: &[Chore] = &[
    Chore {
        name: "setup",
        help: "install what the other chores need (Debian, Ubuntu); --machine: fetch a machine for --engine machine into \
               the user's cache, of another architecture with --machine aarch64 or riscv64; --board: build boards for \
               --engine board there",
        run: set_up,
    },
    Chore {
        name: "demo",
        help: "record two small programs, and see what was hidden in them; board: eight slaves that share a picture",
        run: demo::run,
    },
    Chore {
        name: "test",
        help: "format, lints, tidy, every test; what .ci/run runs. With names of steps, such as python: those alone",
        run: test::run,
    },
    Chore {
        name: "release",
        help: "build the programs as they are shipped and measured: optimised by what they do on small inputs; with names of \
               steps, such as packages: those alone; --check: all steps of a release, in a clean clone",
        run: release::run,
    },
    Chore {
        name: "web",
        help: "build the page of `hodo view` into crates/server/page.html, which hodo embeds; commit it",
        run: |_| web::build(),
    },
    Chore {
        name: "crates",
        help: "pack the libraries as for a registry, build them, and a crate outside that uses them; nothing is sent",
        run: packages::run,
    },
    Chore { name: "tidy", help: "check the rules of the house that compilers don't know", run: tidy::run },
    Chore { name: "fixtures", help: "record anew what lies in fixtures/", run: fixtures::run },
    Chore { name: "fuzz", help: "random input against the readers, for a time each", run: fuzz::run },
    Chore { name: "judge", help: "the same as `cargo judge`", run: |arguments| forward("judge", arguments) },
    Chore {
        name: "bench",
        help: "the same as `cargo bench-peers`",
        run: |arguments| forward("bench", arguments),
    },
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
    workbench::end(&format!("xtask {}", chore.name), (chore.run)(&arguments[1..]))
}

/// Installs all requirements.
fn set_up(arguments: &[String]) -> Outcome {
    match arguments {
        [] => {}
        [option] if option == "--machine" => return set_up_machine("x86_64"),
        [option, architecture] if option == "--machine" => return set_up_machine(architecture),
        [option] if option == "--board" => return board::ensure().map(|_| ()),
        _ => return Err("usage: cargo xtask setup [--machine [x86_64 | aarch64 | riscv64] | --board]".into()),
    }
    setup::ensure(Need::Fuzz)?;
    println!("setup: everything is there");
    Ok(())
}

/// Fetches a machine; only that for x86-64 can have LTTng.
fn set_up_machine(architecture: &str) -> Outcome {
    machine::ensure_for(architecture)?;
    if architecture == "x86_64" { machine::ensure_lttng() } else { Ok(()) }
}

/// Executes a program of the lab in the present folder, as arguments may be paths.
fn forward(program: &str, arguments: &[String]) -> Outcome {
    let mut cargo = command::cargo(&["run", "--quiet", "--package", program, "--"]);
    Err(format!("can't start cargo: {}", cargo.args(arguments).current_dir(".").exec()).into())
}
