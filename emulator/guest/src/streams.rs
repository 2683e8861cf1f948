//! The command's standard streams and its signals: pipes to the command, virtio ports to the host.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::fs::OpenOptionsExt,
    },
    thread,
    time::Duration,
};

use crate::{
    command::Status,
    sideband::Rings,
    system::{self, Error, check, pipe},
    tracers::Tracers,
};

/// Port numbers: standard input, output, error; and signals, one byte each.
const PORTS: [u32; 4] = [1, 2, 3, 4];

/// Where bytes are forwarded.
struct Stream {
    from: File,
    to: File,
}

/// The streams.
pub(crate) struct Streams {
    /// `None` after its end.
    input: Option<Stream>,
    /// Remaining bytes of the current piece of input.
    left: usize,
    /// Standard output and error; `None` after their end.
    output: [Option<Stream>; 2],
    signals: File,
    /// The command's ends of its pipes.
    theirs: Vec<OwnedFd>,
    /// Pipe for the error number if the command can't be executed.
    report: File,
    their_report: Option<File>,
}

impl Streams {
    pub(crate) fn open() -> Result<Streams, Error> {
        let wrong = || Error::of("pipe");
        let [input, output, errors, report] = [pipe(), pipe(), pipe(), pipe()];
        let (input, output) = (input.map_err(wrong())?, output.map_err(wrong())?);
        let (errors, report) = (errors.map_err(wrong())?, report.map_err(wrong())?);
        set_nonblocking(input.write.as_raw_fd()).map_err(wrong())?;
        let [stdin, stdout, stderr, signals] = PORTS;
        Ok(Streams {
            input: Some(Stream { from: port(stdin)?, to: input.write.into() }),
            left: 0,
            output: [
                Some(Stream { from: output.read.into(), to: port(stdout)? }),
                Some(Stream { from: errors.read.into(), to: port(stderr)? }),
            ],
            signals: port(signals)?,
            theirs: vec![input.read, output.write, errors.write],
            report: report.read.into(),
            their_report: Some(report.write.into()),
        })
    }

    /// The command's ends in order of their numbers.
    pub(crate) fn of_command(&self) -> Vec<BorrowedFd<'_>> {
        use std::os::fd::AsFd;
        self.theirs.iter().map(AsFd::as_fd).collect()
    }

    /// In the child: reports why the command can't be executed.
    pub(crate) fn report(&mut self, error: i32) {
        if let Some(report) = &mut self.their_report {
            _ = report.write_all(&error.to_ne_bytes());
        }
    }

    /// In the parent: closes the command's ends, which it has inherited.
    pub(crate) fn started(&mut self) {
        self.theirs.clear();
        self.their_report = None;
    }

    /// Forwards bytes until the command ends.
    pub(crate) fn run(
        &mut self,
        child: i32,
        rings: &mut Rings,
        tracers: &mut Tracers,
    ) -> Result<Status, Error> {
        let process = system::process(child).map_err(Error::of("pidfd_open"))?;
        loop {
            let mut status = 0;
            // SAFETY: `status` is a valid place for the status.
            let ended = check(i64::from(unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) }))
                .map_err(Error::of("wait"))?;
            if ended == i64::from(child) {
                return Ok(self.status(status));
            }
            if ended == 0 {
                self.pass(process.as_raw_fd(), rings, tracers)?;
            }
        }
    }

    fn status(&mut self, status: i32) -> Status {
        let mut error = [0; 4];
        if self.report.read_exact(&mut error).is_ok() {
            return Status::NotStarted(i32::from_ne_bytes(error));
        }
        match libc::WIFSIGNALED(status) {
            true => Status::Killed(libc::WTERMSIG(status)),
            false => Status::Exited(libc::WEXITSTATUS(status)),
        }
    }

    /// Waits for something to forward, or for the end of the command's process.
    fn pass(&mut self, process: RawFd, rings: &mut Rings, tracers: &mut Tracers) -> Result<(), Error> {
        let reads = |file: &File| (file.as_raw_fd(), libc::POLLIN);
        let mut waits = vec![reads(&self.signals), (process, libc::POLLIN)];
        waits.extend(self.output.iter().flatten().map(|stream| reads(&stream.from)));
        waits.extend(self.input.as_ref().map(|stream| reads(&stream.from)));
        waits.extend(rings.events().chain(tracers.events()).map(|event| (event, libc::POLLIN)));
        // Orphaned children that ended are reaped once a second.
        let ready = poll(&waits, 1000).map_err(Error::of("poll"))?;
        let is_ready = |file: RawFd| ready.contains(&file);
        if is_ready(self.signals.as_raw_fd()) {
            self.signal();
        }
        for stream in &mut self.output {
            if stream.as_ref().is_some_and(|stream| is_ready(stream.from.as_raw_fd())) {
                forward(stream);
            }
        }
        if self.input.as_ref().is_some_and(|stream| is_ready(stream.from.as_raw_fd())) {
            self.feed();
        }
        if rings.events().any(is_ready) {
            rings.drain()?;
        }
        if tracers.events().any(is_ready) {
            tracers.drain()?;
        }
        Ok(())
    }

    /// Forwards a signal to the command and the processes that it started.
    fn signal(&mut self) {
        let mut signal = [0];
        if let Ok(1) = self.signals.read(&mut signal) {
            // SAFETY: no memory is involved. Init only receives signals that it handles.
            unsafe { libc::kill(-1, signal[0].into()) };
        } else {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Forwards input as far as the command accepts it. Its length precedes each piece; length 0 ends the input.
    fn feed(&mut self) {
        let Some(Stream { from, to }) = &mut self.input else { return };
        if poll(&[(to.as_raw_fd(), libc::POLLOUT)], 0).is_ok_and(|ready| ready.is_empty()) {
            thread::sleep(Duration::from_millis(1));
            return;
        }
        if self.left == 0 {
            let mut length = [0; 4];
            match from.read_exact(&mut length) {
                Ok(()) => self.left = u32::from_le_bytes(length) as usize,
                // The host's end is not connected yet.
                Err(_) => return thread::sleep(Duration::from_millis(20)),
            }
            if self.left == 0 {
                self.input = None;
            }
            return;
        }
        // A pipe that is ready has space for a page.
        let mut bytes = [0; 4096];
        let most = self.left.min(bytes.len());
        match from.read(&mut bytes[..most]) {
            Ok(count @ 1..) if to.write_all(&bytes[..count]).is_ok() => self.left -= count,
            _ => self.input = None,
        }
    }

    /// Forwards what the command left in its pipes.
    pub(crate) fn drain(&mut self) {
        for stream in &mut self.output {
            while let Some(Stream { from, .. }) = stream {
                match poll(&[(from.as_raw_fd(), libc::POLLIN)], 0) {
                    Ok(ready) if !ready.is_empty() => forward(stream),
                    _ => break,
                }
            }
        }
    }
}

/// Forwards the available bytes; closes the stream at its end.
fn forward(stream: &mut Option<Stream>) {
    let Some(Stream { from, to }) = stream else { return };
    let mut bytes = vec![0; 1 << 16];
    match from.read(&mut bytes) {
        Ok(count @ 1..) if to.write_all(&bytes[..count]).is_ok() => {}
        _ => *stream = None,
    }
}

/// Opens a port, which may take a while to appear.
fn port(number: u32) -> Result<File, Error> {
    // Five seconds in all.
    const WAITS: u32 = 500;
    const WAIT: Duration = Duration::from_millis(10);
    let mut waits = 0;
    loop {
        let found = (0..4).find_map(|device| {
            let path = format!("/dev/vport{device}p{number}");
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path).ok()
        });
        match found {
            Some(port) => return Ok(port),
            None if waits == WAITS => {
                return Err(Error::of(format!("port {number}"))(io::ErrorKind::NotFound.into()));
            }
            None => thread::sleep(WAIT),
        }
        waits += 1;
    }
}

fn set_nonblocking(fd: RawFd) -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(i64::from(unsafe { libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK) })).map(drop)
}

/// The descriptors that become ready within `milliseconds`.
fn poll(waits: &[(RawFd, i16)], milliseconds: i32) -> io::Result<Vec<RawFd>> {
    let mut all: Vec<libc::pollfd> =
        waits.iter().map(|&(fd, events)| libc::pollfd { fd, events, revents: 0 }).collect();
    // SAFETY: the pointer and the length describe `all`.
    let count = unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, milliseconds) };
    match check(count.into()) {
        Ok(_) => Ok(all.iter().filter(|wait| wait.revents != 0).map(|wait| wait.fd).collect()),
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
