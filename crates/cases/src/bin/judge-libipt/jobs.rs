//! Jobs for the transcript: every case, and every stream of every recording.

use std::{fs, io, path::Path};

use hodo_cases::{Case, assemble, encode};
use hodo_formats::{
    Input, Unpacked,
    recording::{Recording, SidebandKind},
};

use crate::Outcome;

/// Settings beside the plain ones: flags of each decoder, errata, callbacks, clocks, filters.
const VARIANTS: &[&str] = &[
    "through=cache flags=5 parts=ib",
    "through=callback flags=3 callback=1",
    "errata=0x3ff mtc=3 ratio=2/100 nominal=20 flags=2 filter=0x401000-0x401004",
    "errata=0x3ff stop=0x401004-0x402000 flags=7 mtc=9 ratio=1/84 parts=qib",
];

/// Jobs of fixtures.
pub(crate) struct Jobs {
    /// One a line, as the transcript reads them.
    pub(crate) list: Vec<String>,
    /// Trace and code of each stream of a recording, as words of a job.
    pub(crate) recordings: Vec<String>,
}

/// Returns the jobs; what they read is written to `folder`.
pub(crate) fn of_fixtures(fixtures: &Path, folder: &Path, mutations: u64) -> Outcome<Jobs> {
    let (mut jobs, mut recordings) = (Vec::new(), Vec::new());
    for path in files(&fixtures.join("pt"), "case")? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let words =
            case(&fs::read_to_string(&path)?, folder, &name).map_err(|error| format!("{name}: {error}"))?;
        add(&mut jobs, &words, mutations);
    }
    for path in files(&fixtures.join("perf"), "data")? {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::read(&path)?;
        let unpacked = Unpacked::default();
        let recording = hodo_formats::read(&Input::file(&bytes, &unpacked))
            .map_err(|error| format!("{name}: {error}"))?;
        let symfs = fs::canonicalize(fixtures.join("perf/symfs"))?;
        for words in streams(&recording, &symfs, folder, &name)? {
            add(&mut jobs, &format!("{words} limit=200000"), mutations.min(10));
            recordings.push(words);
        }
    }
    Ok(Jobs { list: jobs, recordings })
}

fn add(jobs: &mut Vec<String>, words: &str, mutations: u64) {
    jobs.push(format!("{words} mutations={mutations} seed={}", jobs.len()));
    for (seed, variant) in (1..).zip(VARIANTS) {
        jobs.push(format!("{words} {variant} mutations={mutations} seed={seed}"));
    }
}

/// Returns the files of a folder with an extension, by name.
fn files(folder: &Path, extension: &str) -> io::Result<Vec<std::path::PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let mut paths: Vec<_> = entries.iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|found| found == extension));
    paths.sort();
    Ok(paths)
}

/// Returns the words of a case.
fn case(text: &str, folder: &Path, name: &str) -> Outcome<String> {
    let case = Case::parse(text)?;
    let assembly = assemble(&case.code)?;
    let trace = encode(&case.packets, &assembly)?;
    let path = folder.join(format!("{name}.pt"));
    fs::write(&path, &trace.bytes)?;
    let mut words = format!("trace={}", path.display());
    for (index, section) in assembly.sections.iter().enumerate() {
        let path = folder.join(format!("{name}-{index}.bin"));
        fs::write(&path, &section.bytes)?;
        words += &format!(" code={}:0:{}@{:#x}", path.display(), section.bytes.len(), section.address);
    }
    let config = &case.config;
    if let Some(cpu) = config.cpu {
        words += &format!(" cpu={}/{}/{}", cpu.family, cpu.model, cpu.stepping);
    }
    if let Some(frequency) = config.mtc_frequency {
        words += &format!(" mtc={frequency}");
    }
    if let Some((numerator, denominator)) = config.tsc_ctc_ratio {
        words += &format!(" ratio={denominator}/{numerator}");
    }
    Ok(words + &config.max_nonturbo_ratio.map_or(String::new(), |ratio| format!(" nominal={ratio}")))
}

/// Returns the words of each stream of a recording, with the code that is mapped at its end.
fn streams(recording: &Recording<'_>, symfs: &Path, folder: &Path, name: &str) -> Outcome<Vec<String>> {
    let mut code = String::new();
    for entry in &recording.sideband {
        let SidebandKind::Map(mapping) = &entry.kind else { continue };
        let file = String::from_utf8_lossy(mapping.name);
        let path = symfs.join(file.trim_start_matches('/'));
        let path = if path.is_file() { path } else { Path::new(&*file).to_owned() };
        if path.is_file() {
            let (offset, length, address) = (mapping.file_offset, mapping.length, mapping.address);
            code += &format!(" code={}:{offset}:{length}@{address:#x}", path.display());
        }
    }
    let mut jobs = Vec::new();
    for (index, stream) in recording.streams.iter().enumerate() {
        let bytes: Vec<u8> = stream.pieces.iter().flat_map(|piece| piece.bytes).copied().collect();
        if bytes.is_empty() {
            continue;
        }
        let path = folder.join(format!("{name}-{index}.pt"));
        fs::write(&path, bytes)?;
        jobs.push(format!("trace={}{code}", path.display()));
    }
    Ok(jobs)
}
