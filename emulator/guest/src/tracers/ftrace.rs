//! ftrace, in an instance of its own: the command may use the kernel's own buffers.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
    path::Path,
};

use super::Settings;
use crate::{
    setup::copy,
    system::{Error, mount_plainly, uname},
};

const TRACEFS: &str = "/sys/kernel/tracing";
const INSTANCE: &str = "/sys/kernel/tracing/instances/hodo";
/// The clock of the recording: on x86 the counter itself, elsewhere that of perf.
const CLOCK: &str = if cfg!(target_arch = "x86_64") { "x86-tsc" } else { "perf" };
/// The fill level at which a buffer is read, in percent.
const WATERMARK: &str = "50";
/// Larger than a page of the buffer; a read returns one page.
const READ_SIZE: usize = 1 << 16;

/// The instance.
pub(crate) struct Ftrace {
    /// The copy of tracefs in the spool.
    copy: String,
    readers: Vec<Reader>,
}

/// The pages of a CPU.
struct Reader {
    pipe: File,
    out: File,
}

/// How far pages are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// Up to a page that is less than half full: reading makes events too, and would never end.
    HalfEmptyPage,
    /// To the end, when no more events come.
    End,
}

impl Ftrace {
    pub(super) fn open(spool: &str, settings: &Settings) -> Result<Ftrace, Error> {
        mount_plainly("tracefs", TRACEFS, "tracefs")?;
        fs::create_dir(INSTANCE).map_err(Error::of(INSTANCE))?;
        for (file, value) in [
            ("tracing_on", "0"),
            ("trace_clock", CLOCK),
            ("buffer_size_kb", &settings.buffer.to_string()),
            ("buffer_percent", WATERMARK),
        ] {
            write(file, value)?;
        }
        settings.events.iter().try_for_each(|event| {
            write("set_event", event).map_err(|error| error.about(format!("the ftrace event {event}")))
        })?;
        let copy = format!("{spool}/tracing");
        let mut readers = Vec::new();
        while Path::new(&format!("{INSTANCE}/per_cpu/cpu{}", readers.len())).exists() {
            readers.push(Reader::open(&copy, readers.len()).map_err(Error::of("per_cpu"))?);
        }
        let ftrace = Ftrace { copy, readers };
        ftrace.describe()?;
        Ok(ftrace)
    }

    /// Copies the files that describe the pages, with their paths in tracefs. Done at the begin, as the guest may crash.
    fn describe(&self) -> Result<(), Error> {
        for file in ["events/header_page", "events/header_event", "printk_formats"] {
            self.save(TRACEFS, file)?;
        }
        for file in ["trace_clock", "set_event"] {
            self.save(INSTANCE, file)?;
        }
        let system = format!("{}/uname", self.copy);
        fs::write(&system, uname()).map_err(Error::of(system))?;
        let enabled = fs::read_to_string(format!("{INSTANCE}/set_event")).map_err(Error::of("set_event"))?;
        let mut systems: Vec<&str> =
            enabled.lines().filter_map(|line| line.split_once(':')).map(|(system, _)| system).collect();
        systems.push("ftrace");
        systems.dedup();
        for system in systems {
            let folder = format!("{TRACEFS}/events/{system}");
            let events = fs::read_dir(&folder).map_err(Error::of(folder))?;
            for event in events.flatten().filter(|event| event.path().join("format").exists()) {
                self.save(TRACEFS, &format!("events/{system}/{}/format", event.file_name().display()))?;
            }
        }
        Ok(())
    }

    pub(super) fn start(&self) -> Result<(), Error> {
        write("tracing_on", "1")
    }

    pub(super) fn stop(&self) -> Result<(), Error> {
        write("tracing_on", "0")
    }

    pub(super) fn events(&self) -> impl Iterator<Item = RawFd> {
        self.readers.iter().map(|reader| reader.pipe.as_raw_fd())
    }

    pub(super) fn drain(&mut self) -> Result<(), Error> {
        self.readers
            .iter_mut()
            .try_for_each(|reader| reader.drain(Until::HalfEmptyPage))
            .map_err(Error::of("trace_pipe_raw"))
    }

    /// Writes the remaining pages, and what is known in the end: names of threads, and losses.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        let drained = self.readers.iter_mut().try_for_each(|reader| reader.drain(Until::End));
        drained.map_err(Error::of("trace_pipe_raw"))?;
        self.save(TRACEFS, "saved_cmdlines")?;
        for cpu in 0..self.readers.len() {
            self.save(INSTANCE, &format!("per_cpu/cpu{cpu}/stats"))?;
        }
        Ok(())
    }

    fn save(&self, from: &str, file: &str) -> Result<(), Error> {
        let to = format!("{}/{file}", self.copy);
        if let Some(folder) = Path::new(&to).parent() {
            fs::create_dir_all(folder).map_err(Error::of(file))?;
        }
        copy(&format!("{from}/{file}"), &to)
    }
}

/// Writes a setting of the instance.
fn write(file: &str, value: &str) -> Result<(), Error> {
    let opened = OpenOptions::new().append(true).open(format!("{INSTANCE}/{file}"));
    opened.and_then(|mut file| file.write_all(value.as_bytes())).map_err(Error::of(file))
}

impl Reader {
    fn open(copy: &str, cpu: usize) -> io::Result<Reader> {
        let folder = format!("per_cpu/cpu{cpu}");
        fs::create_dir_all(format!("{copy}/{folder}"))?;
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC);
        let pipe = options.open(format!("{INSTANCE}/{folder}/trace_pipe_raw"))?;
        Ok(Reader { pipe, out: File::create(format!("{copy}/{folder}/trace_pipe_raw"))? })
    }

    /// Reads pages and writes them at once.
    fn drain(&mut self, until: Until) -> io::Result<()> {
        let (mut pages, mut page) = (Vec::new(), vec![0; READ_SIZE]);
        loop {
            match self.pipe.read(&mut page) {
                Ok(0) => break,
                Ok(length) => {
                    pages.extend_from_slice(&page[..length]);
                    // The size of a page's records follows its time.
                    let size = u16::from_le_bytes([page[8], page[9]]);
                    if until == Until::HalfEmptyPage && usize::from(size) < length / 2 {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.out.write_all(&pages)
    }
}
