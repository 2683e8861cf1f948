//! Shared by the chores (`xtask`) and the programs of the lab.
//!
//! ```text
//! setup     what the machine needs, installed        release  the programs as they are shipped and measured
//! command   other programs started, their output     workloads  the programs that are recorded, their input
//! machine   what an emulated machine is made of, fetched
//! web       the page of `hodo view`                  lttng    a session of LTTng in user space
//! wheel     the Python package                    source   sources of Debian's packages, fetched
//! embedded  the C code for boards, compiled        board    the programs of emulated boards, built
//! account   what an emulated program of another architecture ran
//! ```

pub mod account;
mod apt;
pub mod board;
pub mod command;
pub mod embedded;
pub mod lttng;
pub mod machine;
pub mod release;
pub mod setup;
pub mod source;
pub mod web;
pub mod wheel;
pub mod workloads;

use std::process::ExitCode;

/// The result of a piece of work; the error is a sentence for the user.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Runs a program of the lab with its arguments; prints its error, if any.
pub fn main(program: &str, run: fn(&[String]) -> Outcome) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    end(program, run(&arguments))
}

/// Prints an error of `program`, if any; returns its exit code.
pub fn end(program: &str, outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            ExitCode::FAILURE
        }
    }
}
