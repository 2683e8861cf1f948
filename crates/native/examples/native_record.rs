//! Records a command natively, and counts what the recording contains.
//!
//!     native_record FILE [--branches N] [--no-traces] [--for MILLISECONDS] [--time-every N] [--select FILE] COMMAND...
//!     native_record FILE [--for MILLISECONDS] --attach PROCESS
//!     native_record --count FILE

use std::{
    error::Error,
    fs,
    fs::File,
    io::BufWriter,
    process::Command,
    time::{Duration, Instant},
};

use hodo_native::{Options, Select, attach, record};
use hodo_native_log::Recording;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("no file")?;
    if file == "--count" {
        return count(&arguments.next().ok_or("no file")?);
    }
    let mut options = Options::default();
    let mut process = None;
    let mut arguments = arguments.peekable();
    while let Some(option) = arguments.next_if(|argument| argument.starts_with("--")) {
        match option.as_str() {
            "--branches" => options.branches = arguments.next().ok_or("no number")?.parse()?,
            "--no-traces" => options.traces = false,
            "--for" => {
                let milliseconds = arguments.next().ok_or("no number")?.parse()?;
                options.duration = Some(Duration::from_millis(milliseconds));
            }
            "--time-every" => options.time_every = arguments.next().ok_or("no number")?.parse()?,
            "--select" => {
                let file = arguments.next().ok_or("no file")?;
                options.select = vec![Select { file, offsets: 0..u64::MAX }];
            }
            "--attach" => process = Some(arguments.next().ok_or("no process")?.parse()?),
            _ => return Err(format!("unknown option {option}").into()),
        }
    }
    let out = BufWriter::new(File::create(&file)?);
    let outcome = match process {
        Some(process) => attach(process, out, options)?,
        None => {
            let mut command = Command::new(arguments.next().ok_or("no command")?);
            command.args(arguments);
            record(command, out, options)?
        }
    };
    for warning in &outcome.warnings {
        eprintln!("{warning}");
    }
    eprintln!("{}, {} threads killed", outcome.status, outcome.killed);
    std::process::exit(outcome.status.code().unwrap_or(1));
}

fn count(file: &str) -> Result<(), Box<dyn Error>> {
    let bytes = fs::read(file)?;
    let start = Instant::now();
    let recording = Recording::read(&bytes)?;
    let read = start.elapsed();
    let mut total = 0;
    for thread in recording.threads() {
        let Some(mut items) = recording.items(thread) else {
            println!("thread {} has no table", thread.thread);
            continue;
        };
        let packed: u64 = thread.blocks.iter().map(|block| u64::from(block.header.length) / 4).sum();
        items.finish();
        total += items.instructions();
        println!(
            "process {} thread {}: {} instructions, {packed} words, digest {:016x}, {} contradictions, losses {:?}",
            thread.process,
            thread.thread,
            items.instructions(),
            items.digest(),
            items.contradictions(),
            thread.losses
        );
    }
    for (key, table) in recording.tables() {
        for note in &table.notes {
            println!("table {key}: {} ({:x})", hodo_native_runtime::wire::note::text(note.note), note.value);
        }
    }
    println!(
        "{total} instructions; tables {read:?}, all {:?}, damage {:?}",
        start.elapsed(),
        recording.damage
    );
    Ok(())
}
