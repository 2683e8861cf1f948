//! `hodo annotate`.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anstyle::{AnsiColor, Style};
use hodo_engine::{Annotation, Chunks, Instruction, Line};

use crate::{
    arguments::Annotate,
    failure::{Failure, written},
    function, input,
    output::{Destination, colours},
    progress::{Begin, Progress},
};

/// Maximum size of a source file, in bytes.
const LARGEST_SOURCE: u64 = 1 << 26;
/// The environment variable that confines sources to folders, separated by colons.
pub const SOURCE_FOLDERS: &str = "HODO_SOURCE_FOLDERS";

/// Runs the command.
pub fn run(command: &Annotate) -> Result<ExitCode, Failure> {
    let format = command.output.format.as_str();
    if !["text", "json"].contains(&format) {
        return Err(Failure::usage(format!(
            "an annotated function is written as text or json, not {format}"
        )));
    }
    let with_sideband = false;
    input::open(&command.input, with_sideband, |trace, window| {
        let function = function::find(&command.function, trace)?;
        let size = Chunks::Default;
        let begin: Begin<'_> = &|bytes| Progress::new(bytes, command.input.quiet);
        let result = input::read(&command.input, trace, size, window, begin, |reading, keep_going| {
            hodo_engine::annotate(trace, function, reading, keep_going)
        })?;
        let Some((annotation, losses)) = result else { return Ok(input::interrupted()) };
        let sources = Sources::find(&annotation, &command.prefix, &command.source_dir);
        let mut out = Destination::open(command.output.output.as_deref())?;
        written(match format {
            "json" => json(&annotation, &sources, &mut out),
            _ => text(&annotation, &sources, command, &mut out),
        })?;
        out.finish()?;
        for file in &sources.missing {
            let help = "use --source-dir DIR or --prefix OLD=NEW";
            message!("source {file} not found; {help}");
        }
        if annotation.code.is_empty() {
            message!("{} was not executed in the selected trace", annotation.function);
        }
        let code = input::exit_code(&command.input, losses.is_empty());
        input::report_losses(losses);
        Ok(code)
    })
}

/// The lines of the source files found, and the names of the others.
pub struct Sources {
    files: BTreeMap<String, Vec<String>>,
    missing: BTreeSet<String>,
}

impl Sources {
    /// Reads the sources of a function. `prefixes` replace the beginnings of their names, and they are looked for in
    /// `folders` too.
    pub fn find(annotation: &Annotation, prefixes: &[(String, String)], folders: &[PathBuf]) -> Sources {
        let mut sources = Sources { files: BTreeMap::new(), missing: BTreeSet::new() };
        let names: BTreeSet<&str> = annotation.lines.iter().map(|line| line.file.as_str()).collect();
        for name in names {
            let found = candidates(name, prefixes, folders).into_iter().find_map(|path| read(&path));
            match found {
                Some(text) => {
                    sources.files.insert(name.to_owned(), printable_lines(&text));
                }
                None => _ = sources.missing.insert(name.to_owned()),
            }
        }
        sources
    }

    fn line(&self, line: &Line) -> Option<&str> {
        let index = usize::try_from(line.line).ok()?.checked_sub(1)?;
        self.files.get(&line.file)?.get(index).map(String::as_str)
    }
}

/// Returns the possible paths of a source file: its name with a prefix replaced, the suffixes of its path in the
/// folders of `--source-dir`, and its name.
fn candidates(name: &str, prefixes: &[(String, String)], folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    for (old, new) in prefixes {
        candidates.extend(name.strip_prefix(old.as_str()).map(|rest| PathBuf::from(format!("{new}{rest}"))));
    }
    for folder in folders {
        let mut rest = name.trim_start_matches('/');
        loop {
            candidates.push(folder.join(rest));
            match rest.split_once('/') {
                Some((_, shorter)) => rest = shorter,
                None => break,
            }
        }
    }
    candidates.push(PathBuf::from(name));
    candidates
}

/// Reads the lines of a source file that debugging information names; `None` if it can't be read.
pub fn read_lines(name: &str) -> Option<Vec<String>> {
    Some(printable_lines(&read(Path::new(name))?))
}

fn printable_lines(text: &str) -> Vec<String> {
    text.lines().map(|line| printable(line.trim_end())).collect()
}

fn read(path: &Path) -> Option<String> {
    if !may_read(path) {
        return None;
    }
    let metadata = fs::metadata(path).ok()?;
    if !metadata.is_file() || metadata.len() > LARGEST_SOURCE {
        return None;
    }
    Some(String::from_utf8_lossy(&fs::read(path).ok()?).into_owned())
}

/// Returns whether a source file is in one of the folders to which [`SOURCE_FOLDERS`] confines them: a recording may name
/// any file as a source.
fn may_read(path: &Path) -> bool {
    let Some(folders) = env::var_os(SOURCE_FOLDERS) else { return true };
    path.canonicalize().is_ok_and(|path| env::split_paths(&folders).any(|folder| path.starts_with(folder)))
}

/// Replaces control characters, which could affect the terminal.
fn printable(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() && character != '\t' { '\u{fffd}' } else { character })
        .collect()
}

/// Returns a function with its sources as JSON.
pub fn value(annotation: &Annotation, sources: &Sources) -> serde_json::Result<serde_json::Value> {
    let mut value = serde_json::to_value(annotation)?;
    let lines = value["lines"].as_array_mut().into_iter().flatten();
    for (shown, line) in lines.zip(&annotation.lines) {
        shown["source"] = sources.line(line).into();
    }
    value["missing_sources"] = sources.missing.iter().map(String::as_str).collect();
    Ok(value)
}

fn json(annotation: &Annotation, sources: &Sources, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &value(annotation, sources)?)?;
    writeln!(out)
}

fn text(
    annotation: &Annotation,
    sources: &Sources,
    command: &Annotate,
    out: &mut impl Write,
) -> io::Result<()> {
    let is_coloured = colours(&command.output, io::stdout().is_terminal());
    let style = |style: Style| if is_coloured { style } else { Style::new() };
    let (bold, dim) = (style(Style::new().bold()), style(Style::new().dimmed()));
    let hot = style(AnsiColor::Red.on_default());
    let Annotation { function, module, instructions, time_ns, .. } = annotation;
    write!(out, "{bold}{function}{bold:#} in {module}: {instructions} instructions, {time_ns} ns")?;
    let total_cycles = annotation.cycles.zip(annotation.ipc);
    if let Some((cycles, ipc)) = total_cycles {
        write!(out, ", {cycles} cycles, IPC {ipc:.2}")?;
    }
    writeln!(out)?;
    let cycles = total_cycles.map_or("", |_| "       cycles");
    writeln!(out, "{bold}  executions         taken     not taken      time ns{cycles}{bold:#}")?;
    let most = annotation.code.iter().map(|instruction| instruction.executions).max().unwrap_or(0);
    let mut line = None;
    for instruction in &annotation.code {
        if instruction.line != line {
            line = instruction.line;
            if let Some(line) = line.map(|index| &annotation.lines[index]) {
                let source = sources.line(line).unwrap_or("");
                let file = line.file.rsplit_once('/').map_or(line.file.as_str(), |(_, file)| file);
                let location = format!("{file}:{}", line.line);
                // The location takes the place of the other columns.
                let width = if total_cycles.is_some() { 40 } else { 27 };
                let ipc = line.ipc.map_or(String::new(), |ipc| format!("IPC {ipc:.2}"));
                writeln!(out, "{bold}{:>12} {ipc:>13} {location:>width$} {source}{bold:#}", line.executions,)?;
            }
        }
        let colour = match instruction.executions {
            0 => dim,
            count if count.saturating_mul(2) > most => hot,
            _ => Style::new(),
        };
        writeln!(out, "{colour}{}{colour:#}", row(instruction))?;
    }
    Ok(())
}

fn row(instruction: &Instruction) -> String {
    let optional = |count: Option<u64>| count.map_or(String::new(), |count| count.to_string());
    let Instruction { address, executions, time_ns, .. } = instruction;
    let cycles = instruction.cycles.map_or(String::new(), |cycles| format!(" {cycles:>12}"));
    let (taken, not_taken) = (optional(instruction.taken), optional(instruction.not_taken));
    format!(
        "{executions:>12} {taken:>13} {not_taken:>13} {time_ns:>12}{cycles}   {address:>8x}: {}",
        instruction.instruction
    )
}
