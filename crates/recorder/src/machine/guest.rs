//! QEMU, the streams between the guest and the recorder, and signals for the command.

use std::{
    ffi::OsString,
    fs,
    io::{self, Read, Write},
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use hodo_emulator::{Target, machine::ticks_per_second};
use rustix::io::{FdFlags, fcntl_setfd};
use signal_hook::iterator::Signals;

use super::{
    disk,
    ended::{Ended, Stop},
    files::Files,
    kind::Kind,
    memory::Memory,
};
use crate::{Error, signals};

/// The number of vCPUs.
const CPUS: u32 = 2;
/// The longest time until the guest runs the command.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest time that QEMU takes to quit.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Streams between the guest and the recorder: the command's input and outputs, and signals for it.
const PORTS: usize = 4;
/// Signals that the command gets; the next one ends QEMU.
const SIGNALS_OF_COMMAND: u32 = 2;
/// Interval between looks at QEMU, the signals and the disk.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The request for the guest's first process: see its `Request`.
pub(super) fn request(command: &[OsString]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut put = |text: &[u8]| {
        bytes.extend(text);
        bytes.push(0);
    };
    put(std::env::current_dir()?.as_os_str().as_bytes());
    put(rustix::process::geteuid().as_raw().to_string().as_bytes());
    put(rustix::process::getegid().as_raw().to_string().as_bytes());
    put(command.len().to_string().as_bytes());
    command.iter().for_each(|argument| put(argument.as_bytes()));
    for (name, value) in std::env::vars_os() {
        put(&[name.as_bytes(), b"=", value.as_bytes()].concat());
    }
    Ok(bytes)
}

/// How QEMU runs the processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// As fast as it can, in parallel.
    Free,
    /// One processor, whose clock counts instructions.
    Counted,
    /// In parallel, with QEMU's own log, for which the plugin makes each instruction a block.
    OneByOne,
}

/// Runs the guest in `memory` to its end.
pub(super) fn run(
    files: &Files,
    plugin: &Path,
    spool: &Path,
    memory: &Memory,
    sysroot: Option<&Path>,
    pace: Pace,
    nested: bool,
) -> Result<Ended, Error> {
    let qemu = || Error::file(&files.kernel);
    let mut ports = Vec::new();
    let mut theirs = Vec::new();
    for _ in 0..PORTS {
        let (ours, other) = UnixStream::pair().map_err(qemu())?;
        fcntl_setfd(other.as_fd(), FdFlags::empty()).map_err(|error| qemu()(error.into()))?;
        ports.push(ours);
        theirs.push(other);
    }
    let mut command = files.command();
    arguments(&mut command, files, plugin, spool, &theirs);
    if let Some(sysroot) = sysroot {
        share(&mut command, "sysroot", sysroot, ",readonly=on");
    }
    let (size, path) = memory.arguments();
    command.arg("-m").arg(format!("{}M", size >> 20));
    command.arg("-object").arg(format!("memory-backend-file,id=ram,size={size},mem-path={path},share=on"));
    processors(&mut command, files.kind, spool, pace, nested);
    // Keys such as Ctrl-C are for the command, and must not end QEMU.
    command.process_group(0);
    let output = fs::File::create(spool.join(MESSAGES)).map_err(Error::file(spool))?;
    command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(output);
    let mut incoming = Signals::new(signals::ending()).map_err(qemu())?;
    let mut child = command.spawn().map_err(qemu())?;
    drop(theirs);
    let mut ports = ports.into_iter();
    let mut port = || ports.next().expect("there are PORTS of them");
    let (stdin, stdout, stderr, mut control) = (port(), port(), port(), port());
    // The guest's input stays open until the end, even if ours fails.
    let _stdin = stdin.try_clone();
    feed(stdin);
    let pumps = [pump(stdout, io::stdout()), pump(stderr, io::stderr())];
    let status = wait(&mut child, &mut incoming, &mut control, spool);
    // Leaves no process running in any case.
    _ = child.kill();
    _ = child.wait();
    for pump in pumps {
        _ = pump.join();
    }
    status
}

/// Name of the file with QEMU's own messages, in the spool.
pub(super) const MESSAGES: &str = "messages";
/// Name of the file with the guest kernel's messages, in the spool.
pub(super) const CONSOLE: &str = "console";

/// Waits for the end. Forwards the first signals to the command, and ends QEMU at the next one or before the disk is full.
fn wait(
    child: &mut Child,
    incoming: &mut Signals,
    control: &mut UnixStream,
    spool: &Path,
) -> Result<Ended, Error> {
    let begin = Instant::now();
    let pid = rustix::process::Pid::from_raw(child.id() as i32);
    let reserve = disk::reserve(spool);
    let (mut signals, mut command_runs) = (0, false);
    let mut stopped: Option<(Stop, Instant)> = None;
    // Asks QEMU to write its data and end.
    let end = |stopped: &mut Option<(Stop, Instant)>, stop| {
        stopped.get_or_insert((stop, Instant::now()));
        pid.into_iter().for_each(|pid| _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM));
    };
    loop {
        if let Some(status) = child.try_wait().map_err(Error::file(spool))? {
            return Ok(Ended { status, stop: stopped.map(|(stop, _)| stop) });
        }
        if !command_runs && spool.join("clock").exists() {
            command_runs = true;
            // QEMU no longer needs it.
            _ = fs::remove_file(initrd(spool));
        }
        for signal in incoming.pending() {
            signals += 1;
            if signals <= SIGNALS_OF_COMMAND && command_runs {
                _ = control.write_all(&[signal as u8]);
            } else {
                end(&mut stopped, Stop::Signal);
            }
        }
        match (stopped, disk::free(spool)) {
            (None, Some(free)) if free < reserve => end(&mut stopped, Stop::Disk(free)),
            (Some((_, since)), _) if since.elapsed() > END_TIMEOUT => _ = child.kill(),
            _ => {}
        }
        if begin.elapsed() > START_TIMEOUT && !command_runs {
            let minutes = START_TIMEOUT.as_secs() / 60;
            let said = super::last_messages(spool);
            return Err(Error::Missing(format!(
                "the guest did not begin to run the command within {minutes} minutes{said}"
            )));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Forwards our standard input in pieces, each after its length. A length of 0 marks the end, as closing the port would drop
/// the data in flight. The thread may still wait for input when the guest has ended; it ends with the recorder.
fn feed(mut port: UnixStream) {
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        let mut stdin = io::stdin().lock();
        loop {
            let count = stdin.read(&mut bytes).unwrap_or(0);
            let sent =
                port.write_all(&(count as u32).to_le_bytes()).and_then(|()| port.write_all(&bytes[..count]));
            if count == 0 || sent.is_err() {
                break;
            }
        }
    });
}

fn pump(mut port: UnixStream, mut out: impl Write + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = port.read(&mut bytes) {
            if out.write_all(&bytes[..count]).and_then(|()| out.flush()).is_err() {
                return;
            }
        }
    })
}

/// The arguments about processors and their clock.
fn processors(command: &mut Command, kind: &Kind, spool: &Path, pace: Pace, nested: bool) {
    let mut kernel = format!("{} quiet rdinit=/init panic=-1 random.trust_cpu=on", kind.arguments);
    // One thread of QEMU runs all processors by turns if instructions are counted. QEMU 11.1 then gives plugins the
    // number of the processor for which a block was translated, and not of the one that runs it.
    let (accelerator, cpus) = match pace {
        Pace::Free | Pace::OneByOne => ("tcg,thread=multi", CPUS),
        Pace::Counted => ("tcg,thread=single", 1),
    };
    match pace {
        Pace::Free => {}
        Pace::Counted => _ = command.args(["-icount", "shift=0,sleep=off"]),
        // A file for each thread; the plugin chooses when and what.
        Pace::OneByOne => _ = command.args(["-d", "tid", "-D"]).arg(spool.join("log-%d")),
    }
    // QEMU emulates AMD's virtual machines, and not those of Intel.
    command.arg("-cpu").arg(format!("{}{}", kind.cpu, if nested { ",+svm" } else { "" }));
    command.args(["-accel", accelerator, "-smp"]).arg(cpus.to_string());
    if kind.target == Target::X86_64 {
        // The guest can't measure the frequency of the counter while its code is being translated.
        let frequency = ticks_per_second(kind.target, pace == Pace::Counted);
        kernel.push_str(&format!(" tsc_early_khz={}", frequency / 1000));
    }
    command.arg("-append").arg(kernel);
}

fn arguments(command: &mut Command, files: &Files, plugin: &Path, spool: &Path, ports: &[UnixStream]) {
    use std::os::fd::AsRawFd;
    let spool_name = escaped(spool);
    command.arg("-M").arg(format!("{},memory-backend=ram", files.kind.board));
    command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"]);
    command.arg("-serial").arg(format!("file:{}", escaped(&spool.join(CONSOLE))));
    command.arg("-kernel").arg(&files.kernel).arg("-initrd").arg(initrd(spool));
    share(command, "root", Path::new("/"), ",readonly=on");
    share(command, "spool", spool, "");
    command.args(["-device", "virtio-serial-pci"]);
    for (port, number) in ports.iter().zip(1..) {
        command.arg("-chardev").arg(format!("socket,id=port{number},fd={}", port.as_raw_fd()));
        command.arg("-device").arg(format!("virtserialport,chardev=port{number},nr={number}"));
    }
    command.arg("-plugin").arg(format!("{},spool={spool_name}", escaped(plugin)));
}

/// Gives the guest a folder, by its name.
fn share(command: &mut Command, name: &str, folder: &Path, more: &str) {
    let folder = escaped(folder);
    let options = format!("local,id={name},path={folder},security_model=none,multidevs=remap{more}");
    command.arg("-fsdev").arg(options);
    command.arg("-device").arg(format!("virtio-9p-pci,fsdev={name},mount_tag={name}"));
}

/// A path as a value of QEMU's options.
fn escaped(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

/// Path of the initramfs in the spool.
pub(super) fn initrd(spool: &Path) -> PathBuf {
    spool.join("initramfs")
}
