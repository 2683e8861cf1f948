//! The processor time of programs: bare, under `hodo check`, and under Valgrind's tools.

use std::{fs, path::Path, process::Command, time::Duration};

use super::{Built, Program, check, fetch};
use crate::{Outcome, command, processor_time::processor_time};

/// How often each program runs; the median time counts.
const MEASUREMENTS: usize = 5;
/// Repeats a program in one run, which otherwise ends too soon to be measured.
const REPEATED: &str =
    "int once(void); int main(void) { for (int n = 0; n < 40; n++) if (once()) return 1; return 0; }\n";
const TOOLS: [&str; 2] = ["callgrind", "cachegrind"];

/// Prints a line for each program: seconds, and how many times those of the bare program.
pub(super) fn measure<'p>(folder: &Path, programs: impl Iterator<Item = &'p Program> + Clone) -> Outcome {
    let folder = folder.join("times");
    fs::create_dir_all(&folder)?;
    let crates = fetch(&folder, programs.clone())?;
    print!("{:12} {:>8} {:>14}", "program", "bare", "hodo check");
    TOOLS.iter().for_each(|tool| print!(" {tool:>14}"));
    println!();
    for program in programs {
        let built = Built::repeated(program, &folder, &crates)?;
        let bare = || Command::new(built.folder.join("program"));
        command::quietly(check(&built.folder).args(["--save", "--runs", "1"]))?;
        let mut times: Vec<Vec<Duration>> = vec![Vec::new(); 2 + TOOLS.len()];
        for _ in 0..MEASUREMENTS {
            times[0].push(processor_time(&mut bare())?.total());
            times[1].push(processor_time(check(&built.folder).args(["--runs", "1"]))?.total());
            for (times, tool) in times[2..].iter_mut().zip(TOOLS) {
                let mut valgrind = Command::new("valgrind");
                valgrind.arg(format!("--tool={tool}")).arg(built.folder.join("program"));
                // Their files of results.
                times.push(processor_time(valgrind.current_dir(&folder))?.total());
            }
        }
        let medians: Vec<f64> = times.into_iter().map(|times| median(times).as_secs_f64()).collect();
        print!("{:12} {:6.2} s", program.name, medians[0]);
        for median in &medians[1..] {
            print!(" {median:6.2} s {:3.0} ×", median / medians[0].max(0.01));
        }
        println!();
    }
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

impl Built {
    /// A program that does its work many times.
    fn repeated(program: &Program, folder: &Path, crates: &Path) -> Outcome<Built> {
        let main = folder.join("main.c");
        fs::write(&main, REPEATED)?;
        let mut program = program.clone();
        program.needs.entry("flags".to_owned()).and_modify(|flags| *flags += " -Dmain=once");
        let mut built = Built::compiled(&program, folder, crates)?;
        built.flags.retain(|flag| flag != "-Dmain=once");
        let object = built.folder.join("main.o");
        if !built.compile(&main, &object)? {
            return Err("the main function can't be compiled".into());
        }
        built.objects.insert(main, object);
        built.link_all()?;
        Ok(built)
    }
}
