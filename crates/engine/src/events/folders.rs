//! Finds CTF folders, parses their metadata and searches their files for packets, in parallel.

use std::{
    collections::VecDeque,
    fs, io, iter,
    path::{Path, PathBuf},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use hodo_formats::ctf::{read_head, read_metadata};
use hodo_formats::events::{DataFile, FilePackets, Plans, Trace, schema::TraceClass};

use crate::{
    files::Files,
    input::{OpenError, OpenErrorReason},
    parallel::in_order,
};

/// The file of a trace's folder that describes the others.
pub const METADATA: &str = "metadata";
/// Maximum depth of the search for traces below an input.
const DEEPEST: u32 = 12;

/// Returns the folders at or below a path that have metadata, sorted.
pub(super) fn below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![(path.to_owned(), 0)];
    while let Some((folder, depth)) = left.pop() {
        if folder.join(METADATA).is_file() {
            found.push(folder);
            continue;
        }
        if depth == DEEPEST {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            // `file_type` does not follow symbolic links, which could form a cycle.
            if entry.file_type()?.is_dir() {
                left.push((entry.path(), depth + 1));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// A folder of metadata and streams.
struct Folder<'f> {
    path: PathBuf,
    metadata: &'f [u8],
    /// The metadata without events, parsed on first use.
    head: OnceLock<Option<TraceClass>>,
    files: Vec<DataFile<'f>>,
}

impl<'f> Folder<'f> {
    fn open(files: &'f Files, input: &Path, path: PathBuf) -> Result<Folder<'f>, OpenError> {
        let file = path.join(METADATA);
        let metadata = files.bytes(&file).map_err(|error| system(&file, error))?;
        let files = data_files(files, input, &path).map_err(|error| system(&path, error))?;
        Ok(Folder { path, metadata, head: OnceLock::new(), files })
    }

    /// Parses its metadata, and builds the decoding plans of its events.
    fn read_metadata(&self, frequency: Option<u64>) -> Result<(TraceClass, Plans), OpenError> {
        let format =
            |error| OpenError { file: self.path.join(METADATA), reason: OpenErrorReason::Format(error) };
        let mut class = read_metadata(self.metadata).map_err(format)?;
        if let Some(frequency) = frequency {
            class.imply_frequency(frequency);
        }
        let plans = Plans::new(&class);
        Ok((class, plans))
    }

    /// Finds the packets of one of its files before all of the metadata is parsed; `None` if that is not possible. `searched`
    /// receives the numbers of bytes as they are searched.
    fn packets(&self, file: &DataFile<'_>, searched: &dyn Fn(usize)) -> Option<FilePackets> {
        let head = self.head.get_or_init(|| read_head(self.metadata)).as_ref()?;
        Some(FilePackets::read(head, file, searched))
    }
}

/// A unit of work on a folder; its metadata comes first.
enum Job<'j, 'f> {
    Metadata(&'j Folder<'f>),
    Packets(&'j Folder<'f>, &'j DataFile<'f>),
}

/// The result of a job.
enum Found<'j, 'f> {
    Metadata(&'j Folder<'f>, Box<Result<(TraceClass, Plans), OpenError>>),
    Packets(FileOf<'j, 'f>, Option<FilePackets>),
}

/// A file, and its folder.
type FileOf<'j, 'f> = (&'j Folder<'f>, &'j DataFile<'f>);

impl<'j, 'f> Job<'j, 'f> {
    fn run(&self, frequency: Option<u64>, searched: &dyn Fn(usize)) -> Found<'j, 'f> {
        match *self {
            Job::Metadata(folder) => Found::Metadata(folder, Box::new(folder.read_metadata(frequency))),
            Job::Packets(folder, file) => Found::Packets((folder, file), folder.packets(file, searched)),
        }
    }
}

/// A trace before its streams are assembled.
struct UnassembledTrace<'j, 'f> {
    name: String,
    class: TraceClass,
    plans: Plans,
    /// Its files, and their packets if they were found.
    files: Vec<(FileOf<'j, 'f>, Option<FilePackets>)>,
}

impl<'f> UnassembledTrace<'_, 'f> {
    /// Assembles the trace. Searches files for packets again if the full metadata defines packets differently than its
    /// head did.
    fn assemble(mut self, threads: usize, searched: &(impl Fn(usize) + Sync)) -> Trace<'f> {
        for ((folder, _), found) in &mut self.files {
            let head = folder.head.get().and_then(Option::as_ref);
            found.take_if(|_| !head.is_some_and(|head| head.finds_packets_as(&self.class)));
        }
        let left = self.files.iter().filter(|(_, found)| found.is_none());
        let left: Vec<&DataFile<'_>> = left.map(|((_, file), _)| *file).collect();
        let mut again = VecDeque::new();
        let find = |(): &mut (), file: &&DataFile<'_>| FilePackets::read(&self.class, file, searched);
        in_order(
            &left,
            threads,
            || (),
            find,
            |packets| {
                again.push_back(packets);
                true
            },
        );
        let files = self.files.into_iter();
        let found = |((_, file), packets): (FileOf<'_, 'f>, Option<FilePackets>)| {
            let packets =
                packets.or_else(|| again.pop_front()).expect("files without packets were searched again");
            (file.clone(), packets)
        };
        let (files, packets) = files.map(found).unzip();
        Trace::of_packets(self.name, (self.class, self.plans), files, packets)
    }
}

/// Reads the traces in folders at or below a path. Folders with the same UUID become one trace. Metadata, which
/// consists mostly of event classes, is parsed while files are searched for packets. `frequency` is that of undescribed
/// clocks, in Hz.
///
/// # Errors
/// Returns an error if a file can't be opened, if metadata can't be parsed, or if all metadata is empty.
pub(super) fn read<'f>(
    files: &'f Files,
    path: &Path,
    folders: Vec<PathBuf>,
    (frequency, threads): (Option<u64>, usize),
    progress: impl Fn(u64, u64) + Sync,
) -> Result<Vec<Trace<'f>>, OpenError> {
    let folders = folders.into_iter().map(|folder| Folder::open(files, path, folder));
    let folders = folders.collect::<Result<Vec<_>, _>>()?;
    // A program that died early leaves empty metadata: that is no reason to reject the other traces.
    if folders.iter().all(|folder| folder.metadata.trim_ascii().is_empty())
        && let Some(folder) = folders.first()
    {
        let reason = "is empty, but must describe the CTF trace; was the trace copied before it was closed?";
        let error = io::Error::new(io::ErrorKind::InvalidData, reason);
        return Err(system(&folder.path.join(METADATA), error));
    }
    let sizes = folders.iter().flat_map(|folder| &folder.files).map(|file| file.bytes.len() as u64);
    let (total, done) = (sizes.sum(), AtomicU64::new(0));
    let searched = |bytes: usize| {
        let before = done.fetch_add(bytes as u64, Ordering::Relaxed);
        progress((before + bytes as u64).min(total), total);
    };
    let jobs: Vec<Job<'_, 'f>> = folders
        .iter()
        .flat_map(|folder| {
            let packets = folder.files.iter().map(move |file| Job::Packets(folder, file));
            iter::once(Job::Metadata(folder)).chain(packets)
        })
        .collect();
    let mut traces: Vec<UnassembledTrace<'_, 'f>> = Vec::new();
    // The index of the current folder's trace.
    let mut current = 0;
    let mut outcome = Ok(());
    in_order(
        &jobs,
        threads,
        || (),
        |(), job| job.run(frequency, &searched),
        |found| {
            match found {
                Found::Metadata(folder, read) => match *read {
                    Ok(read) => current = trace_of(&mut traces, read, || name(path, &folder.path)),
                    Err(error) => outcome = Err(error),
                },
                Found::Packets(file, packets) => traces[current].files.push((file, packets)),
            }
            outcome.is_ok()
        },
    );
    outcome?;
    Ok(traces.into_iter().map(|trace| trace.assemble(threads, &searched)).collect())
}

/// Returns the index of the metadata's trace: one with the same UUID, or a new one.
fn trace_of(
    traces: &mut Vec<UnassembledTrace<'_, '_>>,
    (class, plans): (TraceClass, Plans),
    name: impl FnOnce() -> String,
) -> usize {
    let same = |other: &UnassembledTrace<'_, '_>| class.uuid.is_some() && other.class.uuid == class.uuid;
    match traces.iter().position(same) {
        Some(index) => {
            let trace = &mut traces[index];
            // Metadata only grows while a trace is recorded.
            if classes(&class) > classes(&trace.class) {
                (trace.class, trace.plans) = (class, plans);
            }
            index
        }
        None => {
            traces.push(UnassembledTrace { name: name(), class, plans, files: Vec::new() });
            traces.len() - 1
        }
    }
}

/// An I/O error on a file.
pub(super) fn system(file: &Path, error: io::Error) -> OpenError {
    OpenError { file: file.to_owned(), reason: OpenErrorReason::System(error) }
}

/// Returns the number of stream and event classes.
fn classes(trace: &TraceClass) -> usize {
    trace.streams.len() + trace.streams.values().map(|stream| stream.events.len()).sum::<usize>()
}

/// Returns the display name of the trace in a folder below the input.
fn name(input: &Path, folder: &Path) -> String {
    let below = folder.strip_prefix(input).ok().filter(|below| !below.as_os_str().is_empty());
    let own = || folder.canonicalize().ok().and_then(|path| path.file_name().map(PathBuf::from));
    let name = below.map(Path::to_owned).or_else(own).unwrap_or_else(|| folder.to_owned());
    name.display().to_string()
}

/// Returns the path at which LTTng writes the index of a stream file.
fn index_of(path: &Path) -> Option<PathBuf> {
    let mut name = path.file_name()?.to_owned();
    name.push(".idx");
    Some(path.parent()?.join("index").join(name))
}

/// Returns the stream files of a folder: all but metadata, empty and hidden files. LTTng's indices are in a folder of
/// their own.
fn data_files<'f>(files: &'f Files, input: &Path, folder: &Path) -> io::Result<Vec<DataFile<'f>>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let hidden = name.as_encoded_bytes().starts_with(b".");
        if !hidden && name != METADATA && fs::metadata(entry.path())?.is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let mut data = Vec::new();
    for path in paths {
        let bytes = files.bytes(&path)?;
        let name = path.strip_prefix(input).unwrap_or(&path).display().to_string();
        let index = index_of(&path).filter(|index| index.is_file());
        let index = index.map(|index| files.bytes(&index)).transpose()?;
        if !bytes.is_empty() {
            data.push(DataFile { name, bytes, index });
        }
    }
    Ok(data)
}
