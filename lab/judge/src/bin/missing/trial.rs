//! One recording, decoded with a part of its code in one way.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use fastrand::Rng;
use hodo_engine::{FileSearchPaths, Files, Input, Options, RawInput, RawUnit, Trace};
use hodo_formats::{
    perf::layout::{FEATURES_OFFSET, feature},
    raw::{Code, Owner},
};
use hodo_intel_pt::Config;

use crate::{
    check::{Shown, check},
    code::{self, Piece},
    events,
    truth::{self, Segments},
    withhold::{WAYS, Withholding},
};

/// The result of a trial.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    pub(crate) what: String,
    /// Instructions that ran.
    pub(crate) ran: u64,
    /// Instructions whose code was given.
    pub(crate) given: u64,
    pub(crate) shown: Shown,
}

/// A recording, and what really ran.
pub(crate) struct Subject {
    name: String,
    file: PathBuf,
    symfs: Option<PathBuf>,
    /// Folder for temporary files.
    folder: PathBuf,
    streams: Vec<Segments>,
    /// The code of each trace stream's process, if it never changes.
    code: Vec<Option<Vec<Piece>>>,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Subject {
    /// Reads a recording with all of its code. The number of its instructions must be the emulated processor's count.
    pub(crate) fn new(
        name: &str,
        file: &Path,
        symfs: Option<&Path>,
        folder: &Path,
    ) -> Result<Subject, String> {
        let (folder, symfs) = (folder.join(name), symfs.map(Path::to_owned));
        fs::create_dir_all(&folder).map_err(text)?;
        let mut subject = Subject {
            name: name.to_owned(),
            file: file.to_owned(),
            streams: Vec::new(),
            code: Vec::new(),
            symfs,
            folder,
        };
        let (streams, code, counted) = subject.open(subject.symfs.as_deref(), |trace| {
            let threads = trace.streams.iter().map(|stream| stream.thread);
            let code = threads.map(|thread| match thread {
                Some(thread) => code::of_process(trace, thread, subject.symfs.as_deref(), &subject.folder),
                None => Ok(None),
            });
            let emulated = trace.recording.recorder.as_ref();
            let threads = emulated.map_or(&[][..], |emulated| &emulated.notes.threads);
            let counted: u64 = threads.iter().map(|thread| thread.traced_instructions).sum();
            let code: Result<Vec<_>, String> = code.collect();
            Ok((truth::read(trace), code?, counted))
        })?;
        (subject.streams, subject.code) = (streams, code);
        let mut segments = subject.streams.iter().flatten();
        if let Some(gap) = segments.clone().find_map(|segment| segment.gap.as_ref()) {
            return Err(format!("{name} has a gap: {gap}"));
        }
        let ran = subject.ran();
        if segments.next().is_none() || ran != counted {
            return Err(format!("{name}: {counted} instructions ran, {ran} are shown"));
        }
        Ok(subject)
    }

    /// Opens the recording, with files from a folder.
    fn open<T>(
        &self,
        symfs: Option<&Path>,
        then: impl FnOnce(&Trace<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        self.open_file(&self.file, symfs, then)
    }

    fn open_file<T>(
        &self,
        file: &Path,
        symfs: Option<&Path>,
        then: impl FnOnce(&Trace<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let (files, input) = (Files::default(), Input::File(file.to_owned()));
        let places = FileSearchPaths { symfs: symfs.map(Path::to_owned), ..FileSearchPaths::default() };
        let options = Options { places, ..Options::default() };
        let trace = Trace::open(&files, &input, &options).map_err(text)?;
        then(&trace)
    }

    fn ran(&self) -> u64 {
        self.streams.iter().flatten().map(|segment| segment.instructions.len() as u64).sum()
    }

    /// The trial with this number, which is deterministic; `None` if the recording has nothing to withhold in this way.
    pub(crate) fn trial(&self, seed: u64, number: u64) -> Result<Option<Trial>, String> {
        // Multiplied by the golden ratio in 64 bits, neighbouring numbers have unlike seeds. Of three trials in a row,
        // two are raw, with the ways one after the other, and one removes files, with and without the kept code.
        let mut random = Rng::with_seed(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let trial = match number % 3 {
            2 => self.files_removed((number / 3).is_multiple_of(2), &mut random).map(Some),
            rest => self.raw(WAYS[(number / 3 * 2 + rest) as usize % WAYS.len()], &mut random),
        };
        trial.map_err(|error| format!("{}, trial {number}: {error}", self.name))
    }

    /// One trace stream as a raw buffer, with a part of its code.
    fn raw(&self, way: Withholding, random: &mut Rng) -> Result<Option<Trial>, String> {
        let longest = (0..self.streams.len()).filter(|&stream| self.code[stream].is_some());
        let instructions =
            |stream: &usize| self.streams[*stream].iter().map(|segment| segment.instructions.len());
        let Some(stream) = longest.max_by_key(|stream| instructions(stream).sum::<usize>()) else {
            return Ok(None);
        };
        let Some(pieces) = &self.code[stream] else { return Ok(None) };
        if way == Withholding::Generated && pieces.iter().all(|piece| piece.module.is_some()) {
            return Ok(None);
        }
        let (trace, config, left) = self.open(self.symfs.as_deref(), |trace| {
            let left = way.leave(pieces, trace, random);
            let parts: Vec<_> = trace.streams[stream].parts(u64::MAX).collect();
            Ok((parts.concat(), trace.recording.config.clone(), left))
        })?;
        let with_events = match random.bool() {
            true => Some(events::insert(&trace, &self.streams[stream], random)?),
            false => None,
        };
        let file = self.folder.join("trace");
        fs::write(&file, with_events.as_ref().unwrap_or(&trace)).map_err(text)?;
        let all_code: Vec<_> = pieces.iter().map(|piece| (Owner::Traced, piece.option())).collect();
        let truth = match &with_events {
            Some(_) => &self.with_events(stream, &file, &config, all_code)?,
            None => &self.streams[stream],
        };
        let code = left.iter().map(|piece| (Owner::Traced, piece.option())).collect();
        let raw = RawInput { trace: file, code, unit: RawUnit::IntelPt(config), ..RawInput::default() };
        let (files, input) = (Files::default(), Input::Raw(raw));
        let trace = Trace::open(&files, &input, &Options::default()).map_err(text)?;
        let shown = check(&trace, &[truth]);
        let given = |address: u64| {
            let after = left.partition_point(|piece| piece.addresses.start <= address);
            after > 0 && left[after - 1].addresses.contains(&address)
        };
        let all = || truth.iter().flat_map(|segment| &segment.instructions);
        Ok(Some(Trial {
            what: way.name() + if with_events.is_some() { ", event trace" } else { "" },
            ran: all().count() as u64,
            given: all().filter(|&&address| given(address)).count() as u64,
            shown,
        }))
    }

    /// Reads a stream with inserted events and all of its code. It shows the instructions of the recording, without a gap.
    fn with_events(
        &self,
        stream: usize,
        file: &Path,
        config: &Config,
        code: Vec<(Owner, Code)>,
    ) -> Result<Segments, String> {
        let unit = RawUnit::IntelPt(config.clone());
        let raw = RawInput { trace: file.to_owned(), code, unit, ..RawInput::default() };
        let (files, input) = (Files::default(), Input::Raw(raw));
        let trace = Trace::open(&files, &input, &Options::default()).map_err(text)?;
        let segments = truth::read(&trace).pop().unwrap_or_default();
        let ran = |segments: &Segments| -> Vec<u64> {
            segments.iter().flat_map(|segment| segment.instructions.iter().copied()).collect()
        };
        if let Some(gap) = segments.iter().find_map(|segment| segment.gap.as_ref()) {
            return Err(format!("with events and all code there is a gap: {gap}"));
        }
        match ran(&segments) == ran(&self.streams[stream]) {
            true => Ok(segments),
            false => Err("with events other instructions are shown".to_owned()),
        }
    }

    /// The recording with only some of its files, and without its kept code unless `keep_code`.
    fn files_removed(&self, keep_code: bool, random: &mut Rng) -> Result<Trial, String> {
        let root = self.folder.join("symfs");
        if root.exists() {
            fs::remove_dir_all(&root).map_err(text)?;
        }
        fs::create_dir_all(&root).map_err(text)?;
        let (names, files) = self.open(self.symfs.as_deref(), |trace| {
            let names: Vec<String> = trace.modules.list().iter().map(|module| module.name.clone()).collect();
            Ok((names, code::files(trace, self.symfs.as_deref())))
        })?;
        let mut removed = BTreeSet::new();
        let always = random.usize(0..files.len().max(1));
        for (index, (recorded_path, here)) in files.iter().enumerate() {
            if index == always || random.u8(0..3) == 0 {
                removed.insert(recorded_path.as_str());
                continue;
            }
            let link = root.join(recorded_path.trim_start_matches('/'));
            fs::create_dir_all(link.parent().unwrap_or(&root)).map_err(text)?;
            if !link.exists() {
                symlink(fs::canonicalize(here).map_err(text)?, link).map_err(text)?;
            }
        }
        let mut file = self.file.clone();
        if !keep_code {
            let mut bytes = fs::read(&file).map_err(text)?;
            bytes[FEATURES_OFFSET + usize::from(feature::HODOSCOPE / 8)] &= !(1 << (feature::HODOSCOPE % 8));
            file = self.folder.join("without-kept-code.perf.data");
            fs::write(&file, bytes).map_err(text)?;
        }
        let truth: Vec<&Segments> = self.streams.iter().collect();
        let shown = self.open_file(&file, Some(&root), |trace| Ok(check(trace, &truth)))?;
        let is_given = |module: u32| {
            let name = names[module as usize].as_str();
            !removed.contains(name) && (keep_code || name.starts_with('/'))
        };
        let given = self.streams.iter().flatten().flat_map(|segment| segment.with_modules());
        Ok(Trial {
            what: if keep_code { "files removed".into() } else { "files removed, no kept code".into() },
            ran: self.ran(),
            given: given.filter(|(_, module)| is_given(*module)).count() as u64,
            shown,
        })
    }
}
