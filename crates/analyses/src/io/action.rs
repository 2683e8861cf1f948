//! The effect of system calls on the table of file descriptors.

use hodo_clock::Nanos;
use hodo_model::kernel::{
    KernelEvent, Thread,
    field::{entry, exit},
};
use serde::{Deserialize, Serialize};

use super::Operation;

/// The effect of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Action {
    /// Reads, writes or syncs a file; `has_bytes`: the result is a number of bytes.
    Transfer {
        operation: Operation,
        has_bytes: bool,
    },
    /// Syncs all files or a range of memory, without a descriptor.
    SyncOther,
    /// Copies from the first descriptor to the second.
    Copy,
    /// Returns a descriptor of a named file.
    Open,
    /// Returns a descriptor of something other than a named file.
    Make(Nameless),
    /// Returns two such descriptors.
    MakeTwo(Nameless),
    Close,
    CloseRange,
    Duplicate,
    /// Duplicates a descriptor to a given number.
    DuplicateTo,
    Control,
    Execute,
}

/// A file without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Nameless {
    Socket,
    Pipe,
    EventFd,
    Epoll,
    TimerFd,
    SignalFd,
    Inotify,
    MemFd,
    PidFd,
    PerfEvent,
    IoUring,
}

impl Nameless {
    /// Returns the label in place of a name.
    pub(super) fn label(self) -> &'static str {
        match self {
            Nameless::Socket => "socket",
            Nameless::Pipe => "pipe",
            Nameless::EventFd => "eventfd",
            Nameless::Epoll => "epoll",
            Nameless::TimerFd => "timerfd",
            Nameless::SignalFd => "signalfd",
            Nameless::Inotify => "inotify",
            Nameless::MemFd => "memfd",
            Nameless::PidFd => "pidfd",
            Nameless::PerfEvent => "perf_event",
            Nameless::IoUring => "io_uring",
        }
    }
}

/// `O_CLOEXEC`; `SOCK_CLOEXEC` and similar flags have the same value.
pub(super) const CLOSE_ON_EXEC: i64 = 0o2_000_000;

/// No flag closes the new descriptor on exec.
const NEVER: i64 = 0;
/// The new descriptor is always closed on exec.
const ALWAYS: i64 = -1;

/// A system call by name, with the positions of its arguments, for tracers that record arguments without names.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileCall {
    pub(super) action: Action,
    /// The arguments with the first and the second descriptor.
    descriptors: (usize, usize),
    /// The argument with flags.
    flags: Option<usize>,
    /// The flag that closes the new descriptor on exec, [`NEVER`] or [`ALWAYS`].
    closes: i64,
}

impl FileCall {
    /// Returns the call with this name, if it concerns descriptors.
    pub(super) fn of(name: &str) -> Option<FileCall> {
        let call = |action, flags, closes| FileCall { action, descriptors: (0, 1), flags, closes };
        let plain = |action| call(action, None, NEVER);
        let make = |file, flags| call(Action::Make(file), Some(flags), CLOSE_ON_EXEC);
        // The numbers are positions of the argument with flags.
        Some(match name {
            "sync" | "msync" => plain(Action::SyncOther),
            "open" => call(Action::Open, Some(1), CLOSE_ON_EXEC),
            "openat" => call(Action::Open, Some(2), CLOSE_ON_EXEC),
            "sendfile" | "sendfile64" => FileCall { descriptors: (1, 0), ..plain(Action::Copy) },
            "splice" | "copy_file_range" => FileCall { descriptors: (0, 2), ..plain(Action::Copy) },
            "dup" => plain(Action::Duplicate),
            "dup2" => plain(Action::DuplicateTo),
            "dup3" => call(Action::DuplicateTo, Some(2), CLOSE_ON_EXEC),
            "fcntl" | "fcntl64" => plain(Action::Control),
            // CLOSE_RANGE_CLOEXEC: closes nothing now.
            "close_range" => call(Action::CloseRange, Some(2), 4),
            "execve" | "execveat" => plain(Action::Execute),
            "socket" => make(Nameless::Socket, 1),
            "accept" => plain(Action::Make(Nameless::Socket)),
            "accept4" => make(Nameless::Socket, 3),
            "socketpair" => call(Action::MakeTwo(Nameless::Socket), Some(1), CLOSE_ON_EXEC),
            "pipe" => plain(Action::MakeTwo(Nameless::Pipe)),
            "pipe2" => call(Action::MakeTwo(Nameless::Pipe), Some(1), CLOSE_ON_EXEC),
            "eventfd" | "eventfd2" => make(Nameless::EventFd, 1),
            "epoll_create" => plain(Action::Make(Nameless::Epoll)),
            "epoll_create1" => make(Nameless::Epoll, 0),
            "timerfd_create" => make(Nameless::TimerFd, 1),
            "signalfd" | "signalfd4" => make(Nameless::SignalFd, 3),
            "inotify_init" | "inotify_init1" => make(Nameless::Inotify, 0),
            // MFD_CLOEXEC and PERF_FLAG_FD_CLOEXEC; the last two calls always set close-on-exec.
            "memfd_create" => call(Action::Make(Nameless::MemFd), Some(1), 1),
            "perf_event_open" => call(Action::Make(Nameless::PerfEvent), Some(4), 8),
            "pidfd_open" => call(Action::Make(Nameless::PidFd), None, ALWAYS),
            "io_uring_setup" => call(Action::Make(Nameless::IoUring), None, ALWAYS),
            _ => match Operation::of(name)? {
                (Operation::Open, _) => plain(Action::Open),
                (Operation::Close, _) => plain(Action::Close),
                (Operation::Copy, _) => plain(Action::Copy),
                (operation, has_bytes) => plain(Action::Transfer { operation, has_bytes }),
            },
        })
    }

    /// Decodes the entry of a call.
    pub(super) fn entry(self, event: &KernelEvent<'_>) -> OpenFileCall {
        let either = |named, index| event.integer(named).or_else(|| event.integer(entry::ARGUMENTS + index));
        // A descriptor is an int, whatever the upper 32 bits contain.
        let has_descriptor = self.action != Action::SyncOther;
        let descriptor = |named, index| either(named, index).filter(|_| has_descriptor).map(|fd| fd as i32);
        let flags = self.flags.and_then(|index| either(entry::FLAGS, index)).unwrap_or(0);
        OpenFileCall {
            time: event.time,
            call: event.name,
            action: self.action,
            fd: descriptor(entry::FD, self.descriptors.0),
            other: descriptor(entry::OTHER_FD, self.descriptors.1),
            closes: self.closes == ALWAYS || flags & self.closes != 0,
            command: either(entry::COMMAND, 1).unwrap_or(-1),
            value: either(entry::VALUE, 2).unwrap_or(0),
            // LTTng writes an empty name if it can not read it.
            file: event
                .text(entry::FILENAME)
                .filter(|name| !name.is_empty())
                .map(|name| String::from_utf8_lossy(name).into()),
        }
    }
}

/// A call in progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct OpenFileCall {
    pub(super) time: Nanos,
    /// Index of its name.
    pub(super) call: u32,
    pub(super) action: Action,
    pub(super) fd: Option<i32>,
    pub(super) other: Option<i32>,
    /// Whether exec closes the new descriptor.
    pub(super) closes: bool,
    pub(super) command: i64,
    pub(super) value: i64,
    pub(super) file: Option<Box<str>>,
}

/// The end of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FileCallExit {
    pub(super) time: Nanos,
    pub(super) call: u32,
    pub(super) result: i64,
    /// Descriptors that the call returned through memory.
    pub(super) made: [Option<i32>; 2],
    /// The thread of the call, if the event contains it.
    pub(super) thread: Option<Thread>,
}

impl FileCallExit {
    pub(super) fn new(event: &KernelEvent<'_>) -> FileCallExit {
        let made = [exit::FD, exit::OTHER_FD].map(|field| event.integer(field).map(|fd| fd as i32));
        let result = event.integer(exit::RET).unwrap_or(0);
        FileCallExit { time: event.time, call: event.name, result, made, thread: event.reported() }
    }
}
