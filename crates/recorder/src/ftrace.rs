//! Records with the kernel's tracer, through tracefs.
//!
//! ```text
//! instances/hodo-PID: events, function filter ──► per_cpu/cpuN/trace_pipe_raw, read while the command runs
//!                                                    └──► a spool per CPU ──► trace.dat
//! ```
//!
//! An instance has separate buffers and settings, so it does not disturb other tracers and changes no setting of the
//! system. It is removed at the end, however the recording ends.
//!
//! Source: the kernel's Documentation/trace/ftrace.rst, "Instances" and "per_cpu/cpu0/trace_pipe_raw".

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use hodo_formats::ftrace::write::Head;
use rustix::event::{PollFd, PollFlags, poll};

use crate::{Engine, Error, Outcome, Request, supervise};

/// Which available pages are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pages {
    /// Not the one that is being written.
    Complete,
    All,
}

/// The mount point of tracefs, since Linux 4.1.
const TRACEFS: &str = "/sys/kernel/tracing";
/// The prefix of our instances' names; the process id follows.
const PREFIX: &str = "hodo-";
/// The default buffer size per CPU, in bytes.
const DEFAULT_BUFFER: u64 = 8 << 20;
/// The fill level at which a buffer is read, in percent.
const WATERMARK: &str = "25";
/// The longest wait for data before a reader checks whether the program has ended.
const POLL_INTERVAL: rustix::event::Timespec = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

pub(crate) fn record(request: &Request) -> Result<Outcome, Error> {
    if request.filter.is_some() || request.snapshot.is_some() || request.overflow.is_some() {
        return Err(Error::Missing(
            "--filter, --snapshot and --overflow are about Intel PT; ftrace takes -e and --function"
                .to_owned(),
        ));
    }
    let tracefs = tracefs()?;
    remove_abandoned(&tracefs);
    let instance = Instance::new(&tracefs)?;
    instance.set_up(request)?;
    let folder = request.output.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let mut readers = Vec::new();
    for cpu in cpus(&instance.path)? {
        readers.push(CpuReader::open(&instance, cpu, folder)?);
    }
    let (program, rest) = request.command.split_first().ok_or(Error::NoCommand)?;
    let ended = AtomicBool::new(false);
    let status = thread::scope(|scope| {
        let threads: Vec<_> = readers.iter_mut().map(|reader| scope.spawn(|| reader.run(&ended))).collect();
        let status = instance.write("tracing_on", "1").and_then(|()| {
            supervise::run(Command::new(program).args(rest)).map_err(|error| Error::Command {
                command: program.to_string_lossy().into_owned(),
                reason: error.to_string(),
            })
        });
        let stopped = instance.write("tracing_on", "0");
        ended.store(true, Ordering::Relaxed);
        let read: io::Result<()> =
            threads.into_iter().try_for_each(|thread| thread.join().expect("a reader does not panic"));
        // What failed first is reported.
        let status = status?;
        stopped?;
        read.map_err(Error::file(&instance.path)).map(|()| status)
    })?;
    let head = instance.head(request)?;
    let lost: u64 = readers.iter().map(|reader| lost(&instance.path, reader.cpu)).sum();
    let mut spools: Vec<File> = readers.into_iter().map(|reader| reader.spool).collect();
    drop(instance);
    let bytes =
        assemble(&head, &mut spools, &request.output, folder).map_err(Error::file(&request.output))?;
    Ok(Outcome {
        engine: Engine::Ftrace,
        status,
        instructions: None,
        threads: None,
        snapshots: None,
        bytes,
        beside: Vec::new(),
        warnings: lost_warning(lost).into_iter().collect(),
    })
}

/// The folder of tracefs.
fn tracefs() -> Result<PathBuf, Error> {
    let path = Path::new(TRACEFS);
    match fs::read_dir(path.join("instances")) {
        Ok(_) => Ok(path.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(Error::Missing(format!(
            "{TRACEFS} may not be read: ftrace is for root; run `sudo hodo record --engine ftrace …`"
        ))),
        Err(_) => Err(Error::Missing(format!(
            "{TRACEFS} has no tracefs in it; as root, `mount -t tracefs tracefs {TRACEFS}`, on a kernel with \
             CONFIG_FTRACE; containers need it from their host"
        ))),
    }
}

/// Removes instances of recorders that no longer exist.
fn remove_abandoned(tracefs: &Path) {
    for entry in fs::read_dir(tracefs.join("instances")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            drop(Instance { tracefs: tracefs.to_owned(), path: entry.path() });
        }
    }
}

/// An instance, with its buffers and settings.
struct Instance {
    tracefs: PathBuf,
    path: PathBuf,
}

impl Drop for Instance {
    fn drop(&mut self) {
        // Removing the folder undoes what fails here.
        _ = self.write("tracing_on", "0");
        _ = self.write("current_tracer", "nop");
        _ = self.write("set_event", "");
        _ = fs::remove_dir(&self.path);
    }
}

impl Instance {
    fn new(tracefs: &Path) -> Result<Instance, Error> {
        let path = tracefs.join("instances").join(format!("{PREFIX}{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => Error::Missing(format!(
                "{} can't be made ({error}): ftrace is for root; run `sudo hodo record --engine ftrace …`",
                path.display()
            )),
            _ => Error::File { path: path.clone(), error },
        })?;
        Ok(Instance { tracefs: tracefs.to_owned(), path })
    }

    fn write(&self, file: &str, value: &str) -> Result<(), Error> {
        let path = self.path.join(file);
        // The kernel empties settings that are opened for truncation.
        let mut options = OpenOptions::new();
        let open = if value.is_empty() { options.write(true).truncate(true) } else { options.append(true) };
        let written = open.open(&path).and_then(|mut file| file.write_all(value.as_bytes()));
        written.map_err(Error::file(&path))
    }

    fn set_up(&self, request: &Request) -> Result<(), Error> {
        self.write("tracing_on", "0")?;
        self.write("trace_clock", "mono")?;
        self.write(
            "buffer_size_kb",
            &(request.buffer_size.unwrap_or(DEFAULT_BUFFER) >> 10).max(1).to_string(),
        )?;
        // Kernels before 5.0 have no watermark, and wake readers at once.
        _ = self.write("buffer_percent", WATERMARK);
        if let Some(filter) = &request.function {
            let wrong = |error: Error| Error::Filter {
                filter: filter.clone(),
                reason: format!("{error}; `available_filter_functions` of tracefs lists what can be traced"),
            };
            self.write("set_ftrace_filter", filter).map_err(wrong)?;
            self.write("current_tracer", "function").map_err(wrong)?;
        }
        if request.events.is_empty() && request.function.is_none() {
            let reason = "nothing to record; name events, such as -e sched -e irq, or --function 'vfs_*'";
            return Err(Error::Missing(reason.to_owned()));
        }
        for event in &request.events {
            self.write("set_event", event).map_err(|error| {
                let reason = format!(
                    "{error}; `available_events` in tracefs lists the events, such as sched:sched_switch"
                );
                Error::Event { event: event.clone(), reason }
            })?;
        }
        Ok(())
    }

    fn head(&self, request: &Request) -> Result<Head, Error> {
        let symbols = match request.function {
            Some(_) => fs::read("/proc/kallsyms").map_err(Error::file(Path::new("/proc/kallsyms")))?,
            None => Vec::new(),
        };
        let uname = rustix::system::uname();
        let words = [uname.sysname(), uname.nodename(), uname.release(), uname.machine()];
        let system = words.map(|word| word.to_string_lossy().into_owned()).join(" ");
        head(&self.tracefs, &self.path, symbols, system)
    }
}

/// The CPUs with buffers in an instance.
pub(crate) fn cpus(instance: &Path) -> Result<Vec<u32>, Error> {
    let path = instance.join("per_cpu");
    let entries = fs::read_dir(&path).map_err(Error::file(&path))?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut cpus: Vec<u32> = names.filter_map(|name| name.strip_prefix("cpu")?.parse().ok()).collect();
    cpus.sort_unstable();
    Ok(cpus)
}

/// Events that were lost because a CPU's buffer was full.
pub(crate) fn lost(instance: &Path, cpu: u32) -> u64 {
    let stats = read_whole(&instance.join(format!("per_cpu/cpu{cpu}/stats"))).unwrap_or_default();
    let stats = String::from_utf8_lossy(&stats).into_owned();
    let count = |name| stats.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    ["overrun:", "commit overrun:", "dropped events:"].into_iter().filter_map(count).sum()
}

/// The warning about lost events, if there are any.
pub(crate) fn lost_warning(lost: u64) -> Option<String> {
    (lost > 0).then(|| {
        format!(
            "{lost} events were lost because a buffer was full; record less, or with a larger --buffer-size"
        )
    })
}

/// Describes the recording of an instance: the event formats of all systems with enabled events, and names.
pub(crate) fn head(tracefs: &Path, instance: &Path, symbols: Vec<u8>, system: String) -> Result<Head, Error> {
    let read = |file: &str| {
        let path = instance.join(file);
        read_whole(&path).map_err(Error::file(&path))
    };
    let enabled = String::from_utf8_lossy(&read("set_event")?).into_owned();
    let mut systems: Vec<&str> =
        enabled.lines().filter_map(|line| line.split_once(':')).map(|(system, _)| system).collect();
    systems.sort_unstable();
    systems.dedup();
    let mut formats = Vec::new();
    for system in systems {
        formats.push((system.to_owned(), format_files(&instance.join("events").join(system))?));
    }
    let of_tracefs = |file: &str| read_whole(&tracefs.join(file)).unwrap_or_default();
    Ok(Head {
        page_size: page_size(&of_tracefs("events/header_page")),
        header_page: of_tracefs("events/header_page"),
        header_event: of_tracefs("events/header_event"),
        own_formats: format_files(&tracefs.join("events/ftrace"))?,
        systems: formats,
        symbols,
        texts: of_tracefs("printk_formats"),
        threads: of_tracefs("saved_cmdlines"),
        clock: read("trace_clock")?.trim_ascii().to_owned(),
        tsc: None,
        system,
        recorder: concat!("hodo ", env!("CARGO_PKG_VERSION")).to_owned(),
    })
}

/// The format files below a system's folder, by event name.
fn format_files(folder: &Path) -> Result<Vec<Vec<u8>>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::file(folder))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path().join("format")).collect();
    paths.sort();
    Ok(paths.into_iter().filter_map(|path| fs::read(path).ok()).collect())
}

/// The size of a buffer page: offset plus size of its data.
fn page_size(header_page: &[u8]) -> u32 {
    let text = String::from_utf8_lossy(header_page).into_owned();
    let data = text.lines().find(|line| line.contains(" data;"));
    let number = |name: &str| data?.split_once(name)?.1.split(';').next()?.parse::<u32>().ok();
    number("offset:").zip(number("size:")).map_or(4096, |(offset, size)| offset + size)
}

/// Reads a file of tracefs. Some of them return everything to the first read, and nothing to others.
fn read_whole(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(bytes),
            length => bytes.extend_from_slice(&buffer[..length]),
        }
    }
}

/// Reads the buffer pages of a CPU.
struct CpuReader {
    cpu: u32,
    pipe: File,
    spool: File,
}

impl CpuReader {
    fn open(instance: &Instance, cpu: u32, folder: &Path) -> Result<CpuReader, Error> {
        let path = instance.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        let pipe = OpenOptions::new().read(true).custom_flags(nonblocking).open(&path);
        let spool = tempfile::tempfile_in(folder).map_err(Error::file(folder))?;
        Ok(CpuReader { cpu, pipe: pipe.map_err(Error::file(&path))?, spool })
    }

    /// Reads until the program has ended, and then the rest.
    fn run(&mut self, ended: &AtomicBool) -> io::Result<()> {
        // Larger than any page of the buffer; a read returns one page.
        let mut page = vec![0; 1 << 16];
        while !ended.load(Ordering::Relaxed) {
            let mut wait = [PollFd::new(&self.pipe, PollFlags::IN)];
            match poll(&mut wait, Some(&POLL_INTERVAL)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => self.drain(&mut page, Pages::Complete)?,
                Err(error) => return Err(error.into()),
            }
        }
        self.drain(&mut page, Pages::All)
    }

    /// Reads the available pages.
    fn drain(&mut self, page: &mut [u8], pages: Pages) -> io::Result<()> {
        loop {
            match self.pipe.read(page) {
                Ok(0) => return Ok(()),
                Ok(length) => {
                    let page = &page[..length];
                    self.spool.write_all(page)?;
                    // Reading each event as it comes would produce a page per event.
                    if pages == Pages::Complete && is_being_written(page) {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Whether a page is less than half full: the size of its records follows its time.
fn is_being_written(page: &[u8]) -> bool {
    let size = page.get(8..).and_then(|rest| rest.first_chunk()).map_or(0, |size| u16::from_le_bytes(*size));
    usize::from(size) < page.len() / 2
}

/// Writes the recording, which is complete or absent: the head, and the pages of each CPU. Returns its size.
pub(crate) fn assemble(head: &Head, spools: &mut [File], output: &Path, folder: &Path) -> io::Result<u64> {
    let mut sizes = Vec::new();
    for spool in spools.iter_mut() {
        sizes.push(spool.seek(io::SeekFrom::End(0))?);
        spool.rewind()?;
    }
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    let head = head.bytes(&sizes);
    file.write_all(&head)?;
    for spool in spools {
        io::copy(spool, &mut file)?;
    }
    file.persist(output)?;
    Ok(head.len() as u64 + sizes.iter().sum::<u64>())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_size_of_a_page_is_that_of_its_header_and_data() {
        let text = b"\tfield: int overwrite;\toffset:8;\tsize:1;\n\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
        assert_eq!(super::page_size(text), 4096);
        assert_eq!(super::page_size(b""), 4096);
    }
}
