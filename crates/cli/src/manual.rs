//! `hodo manual` and `hodo completions`: man pages of the program and of each command, and completions for shells, made of the
//! definitions that also make `--help`.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Arg, Command, CommandFactory};
use clap_mangen::{
    Man,
    roff::{Inline, Roff, bold, roman},
};

use crate::{
    arguments::Arguments,
    failure::{Failure, written},
};

/// Exit codes, for the page of the program.
const EXIT_CODES: [(&str, &str); 4] = [
    ("0", "Done. `hodo record` exits with the code of the command that it ran."),
    (
        "1",
        "With --strict: something was lost or can't be decoded. `hodo diff --fail-over`: the limit is exceeded.",
    ),
    ("2", "Wrong use."),
    ("3", "An input can't be read, or the output can't be written."),
];

/// Prints shell completions.
pub fn completions(shell: clap_complete::Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "hodo", &mut script);
    written(io::stdout().write_all(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for the program and one for each command into a folder.
///
/// # Errors
/// The folder or a file can't be written.
pub fn write(folder: &Path) -> Result<ExitCode, Failure> {
    let failed = |path: &Path, error: io::Error| {
        Failure::unreadable(format!("can't write {}: {error}", path.display()))
    };
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    // `hodo help` is described by the program's page.
    let mut program = Arguments::command();
    program.build();
    for command in std::iter::once(&program).chain(commands(&program)) {
        let (name, text) = page(command, &program).expect("memory accepts all bytes");
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the commands that have pages.
fn commands(program: &Command) -> impl Iterator<Item = &Command> {
    program.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

/// Returns the file name and the text of a page.
fn page(command: &Command, program: &Command) -> io::Result<(PathBuf, Vec<u8>)> {
    let is_program = command.get_name() == program.get_name();
    // All options in the synopsis would fill a screen.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    // The kinds of reports have a section of their own, with explanations.
    let without_values =
        |argument: Arg| if argument.is_positional() { argument.hide_possible_values(true) } else { argument };
    let man = Man::new(command.clone().override_usage(usage).mut_args(without_values))
        .title(command.get_display_name().unwrap_or("hodo").to_uppercase())
        .source(format!("hodo {}", env!("CARGO_PKG_VERSION")))
        .manual("Hodoscope");
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;
    if is_program {
        man.render_subcommands_section(&mut text)?;
    }
    man.render_options_section(&mut text)?;
    let mut more = Roff::new();
    if let Some(help) = command.get_after_help() {
        sections(&help.to_string(), &mut more);
    }
    if is_program {
        more.control("SH", ["EXIT STATUS"]);
        EXIT_CODES.iter().for_each(|(code, meaning)| item(code, meaning, &mut more));
    }
    see_also(command, program, &mut more);
    more.to_writer(&mut text)?;
    Ok((man.get_filename().into(), text))
}

/// Adds the text below the options of `--help`: a line that ends with a colon begins a section, and each indented line
/// below it is a term, such as a command, and its explanation.
fn sections(help: &str, page: &mut Roff) {
    for line in help.lines() {
        match line.strip_prefix("  ") {
            Some(row) => {
                let (term, explanation) = columns(row.trim());
                item(term, explanation, page);
            }
            None if line.is_empty() => {}
            None => match line.strip_suffix(':') {
                Some(heading) => {
                    page.control("SH", [heading.to_uppercase().as_str()]);
                }
                None => {
                    page.control("PP", []).text([roman(line)]);
                }
            },
        }
    }
}

/// Divides a row into its columns: at two spaces or more, else at the first one. Commands may have one column only.
fn columns(row: &str) -> (&str, &str) {
    let (term, explanation) = match row.split_once("  ") {
        Some(columns) => columns,
        None if row.starts_with("hodo ") => (row, ""),
        None => row.split_once(' ').unwrap_or((row, "")),
    };
    (term, explanation.trim_start())
}

/// Adds a term and its explanation below it.
fn item(term: &str, explanation: &str, page: &mut Roff) {
    page.control("TP", []).text([bold(term)]);
    if !explanation.is_empty() {
        page.text([roman(explanation)]);
    }
}

/// Adds the names of the other pages.
fn see_also(command: &Command, program: &Command, page: &mut Roff) {
    page.control("SH", ["SEE ALSO"]);
    let names = commands(program).filter(|other| other.get_name() != command.get_name());
    let names = names.filter_map(Command::get_display_name);
    let names = Some("hodo").filter(|_| command.get_name() != program.get_name()).into_iter().chain(names);
    let mut list: Vec<Inline> = Vec::new();
    for name in names {
        list.extend((!list.is_empty()).then(|| roman(", ")));
        list.extend([bold(name), roman("(1)")]);
    }
    page.text(list);
}
