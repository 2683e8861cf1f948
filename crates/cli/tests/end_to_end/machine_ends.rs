//! Machines that end before their command does, and what else happens inside them.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

use crate::{
    machine::{listed, record, record_command, truth},
    run::{Folder, command, hodo, rows},
};

/// Far longer than a machine takes to boot.
const PATIENCE: Duration = Duration::from_secs(290);

/// A recording that ended early, and the recorder's messages.
struct Ended {
    recording: String,
    messages: String,
}

/// Records a command in a folder until the processors have written some of their traces, and then calls `end` with the
/// recorder's process id and the spool. `None`, with a message, if no machine is set up here.
fn record_until(folder: &Path, command_line: &[&str], end: impl Fn(u32, &Path)) -> Option<Ended> {
    let out = folder.join("machine.data").into_os_string().into_string().expect("a path of UTF-8");
    let mut recorder =
        command(&[&["record", "--engine", "machine", "-o", &out, "--"], command_line].concat());
    let mut child = recorder.spawn().expect("hodo starts");
    let begin = Instant::now();
    let mut ended = false;
    while child.try_wait().expect("a child").is_none() {
        let spool = spool(folder);
        let has_grown = |spool: &PathBuf| {
            fs::metadata(spool.join("cpu-0.progress")).is_ok_and(|progress| progress.len() > 0)
        };
        if let Some(spool) = spool.filter(has_grown)
            && !ended
        {
            end(child.id(), &spool);
            ended = true;
        }
        assert!(begin.elapsed() < PATIENCE, "it does not end");
        thread::sleep(Duration::from_millis(20));
    }
    let output = child.wait_with_output().expect("output can be read");
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    if messages.contains("xtask setup --machine") {
        eprintln!("skipped: no emulated machine is set up (cargo xtask setup --machine)");
        return None;
    }
    assert!(Path::new(&out).exists(), "{messages}");
    assert!(spool(folder).is_none(), "the spool stays");
    Some(Ended { recording: out, messages })
}

fn spool(folder: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".hodo-")))
}

/// Checks that the end of each processor's trace is a loss with this reason, and that all of the trace before it is right.
fn ends_because(recording: &str, reason: &str) {
    let truth = truth(recording);
    assert!(!truth.is_empty());
    assert_eq!(listed(recording), truth);
    let info = hodo(&["info", "--format", "json", recording]).fine().json();
    let report = hodo(&["report", "functions", "--format", "json", recording]).fine().json();
    let causes = report["loss"].as_array().expect("losses").iter().map(|loss| loss["cause"].as_str());
    let causes: Vec<_> = causes.flatten().collect();
    assert!(causes.iter().all(|&cause| cause == "cut_short"), "all that is there is what ran: {causes:?}");
    for cut in [&info["cut"], &info["loss"], &report["loss"]] {
        let cut = cut.as_array().expect("losses");
        let why = |loss: &Value| loss["reason"].as_str().or(loss["detail"].as_str()).unwrap_or("").to_owned();
        assert!(cut.iter().any(|loss| why(loss).contains(reason)), "{cut:?}");
    }
    let time = |cut: &Value| cut["time_ns"].as_u64().expect("a time");
    let span = |name: &str| info["span"][name].as_u64().expect("a time");
    let cuts = info["cut"].as_array().expect("losses");
    assert!(cuts.iter().all(|cut| time(cut) > span("begin_ns")), "{info}");
    assert!(report["summary"]["instructions"].as_u64() > Some(100_000), "{report}");
}

/// A row of `report functions`.
#[derive(Debug)]
struct FunctionRow {
    name: String,
    module: String,
    calls: u64,
}

fn functions(recording: &str, more: &[&str]) -> Vec<FunctionRow> {
    let arguments = [&["report", "functions", "--format", "json", recording], more].concat();
    let report = hodo(&arguments).fine().json();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| FunctionRow {
        name: text(&row["function"]),
        module: text(&row["module"]),
        calls: row["calls"].as_u64().unwrap_or(0),
    };
    rows(&report).iter().map(row).collect()
}

#[test]
fn a_panic_of_the_guest_is_a_result() {
    if !geteuid().is_root() {
        eprintln!("skipped: only root makes the guest's kernel panic");
        return;
    }
    let folder = Folder::new();
    let crash = "echo c > /proc/sysrq-trigger; sleep 60";
    let ended = record_until(&folder.path(), &["sh", "-c", crash], |_, _| {});
    let Some(Ended { recording, messages }) = ended else { return };
    let reason = "the guest's kernel panicked: sysrq triggered crash";
    assert!(messages.contains(reason), "{messages}");
    ends_because(&recording, reason);
    // Names of the kernel and of its processes, which the guest did not live to write.
    let functions = functions(&recording, &["--comm", "sh"]);
    assert!(functions.iter().any(|row| row.name == "sysrq_handle_crash"), "{functions:?}");
    assert!(functions.iter().any(|row| row.module.contains("libc.so")), "{functions:?}");
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn what_qemu_wrote_before_it_was_killed_is_recorded() {
    let folder = Folder::new();
    let kill = |recorder: u32, _: &Path| {
        let tasks = fs::read_dir(format!("/proc/{recorder}/task")).expect("it runs").flatten();
        let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let qemu = children.collect::<String>().split_whitespace().next().and_then(|pid| pid.parse().ok());
        let qemu = qemu.and_then(Pid::from_raw).expect("a child");
        kill_process(qemu, Signal::KILL).expect("it is ours");
    };
    let busy = "while :; do /bin/true; done";
    let ended = record_until(&folder.path(), &["sh", "-c", busy], kill);
    let Some(Ended { recording, messages }) = ended else { return };
    assert!(messages.contains("QEMU ended (signal: 9 (SIGKILL)); the recording ends there"), "{messages}");
    ends_because(&recording, "QEMU ended (signal: 9 (SIGKILL))");
}

/// A small disk, which is unmounted when this value is dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(folder: &Folder) -> Option<Disk> {
        let path = folder.path().join("disk");
        fs::create_dir(&path).expect("the folder is ours");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=48m", "tmpfs"]).arg(&path).status();
        mount.is_ok_and(|status| status.success()).then_some(Disk(path))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn a_full_disk_ends_the_recording_and_loses_nothing_of_it() {
    let folder = Folder::new();
    let Some(disk) = Disk::mount(&folder) else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let fill = |_: u32, spool: &Path| {
        let file = fs::File::create(spool.with_file_name("filler")).expect("the disk is ours");
        let mut length = 0;
        for size in [1 << 20, 1 << 12] {
            while file.write_all_at(&vec![1; size], length).is_ok() {
                length += size as u64;
            }
        }
    };
    let busy = "while :; do /bin/true; done";
    let ended = record_until(&disk.0, &["sh", "-c", busy], fill);
    let Some(Ended { recording, messages }) = ended else { return };
    // Either the recorder noticed the full disk first, or the emulated processor did.
    let reasons = ["the disk is full: ", "No space left on device"];
    let reason =
        reasons.into_iter().find(|reason| messages.contains(reason)).unwrap_or_else(|| panic!("{messages}"));
    ends_because(&recording, reason);
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn functions_of_modules_that_were_unloaded_have_names() {
    let cache = std::env::var_os("HODO_MACHINE").map(PathBuf::from).or_else(|| {
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
        Some(std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)?.join("hodo/machine"))
    });
    let modules = cache.map(|cache| cache.join("kernel/modules/kernel")).unwrap_or_default();
    if !geteuid().is_root() || !modules.join("net/ipv4/tcp_bic.ko").exists() {
        eprintln!("skipped: only root loads modules, and only a machine has some");
        return;
    }
    // finit_module and delete_module. The second module is loaded where the first one was.
    let script = format!(
        r#"for my $one ("crypto/crc32_generic", "net/ipv4/tcp_bic") {{
            open my $file, "<", "{}/$one.ko" or die "$one: $!";
            my ($name, $options) = ($one =~ /(\w+)$/, "");
            syscall(313, fileno($file), $options, 0) == 0 or die "$one: $!";
            syscall(176, $name, 0) == 0 or die "$name: $!";
        }}"#,
        modules.display()
    );
    let folder = Folder::new();
    let Some((recording, ran)) = record_command(&folder, &["--kernel"], &["perl", "-e", &script]) else {
        return;
    };
    assert_eq!(ran.code, 0, "{ran:?}");
    let functions = functions(&recording, &[]);
    for (name, module) in [
        ("crc32_mod_init", "[crc32_generic]"),
        ("crc32_update", "[crc32_generic]"),
        ("crc32_mod_fini", "[crc32_generic]"),
        ("bictcp_register", "[tcp_bic]"),
        ("bictcp_unregister", "[tcp_bic]"),
    ] {
        let is_there = functions.iter().any(|row| row.name == name && row.module == module);
        let is_of_modules = |row: &&FunctionRow| row.module.contains("crc32") || row.module.contains("bic");
        let of_modules: Vec<_> = functions.iter().filter(is_of_modules).collect();
        assert!(is_there, "{name}: {of_modules:?}");
    }
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn calls_of_a_function_that_alone_is_recorded_are_counted() {
    let folder = Folder::new();
    let options = ["--filter", "filter vfs_read", "--process"];
    let reads = "open my $file, '<', '/dev/zero' or die; sysread $file, my $bytes, 8 for 1..200";
    let Some((recording, ran)) = record_command(&folder, &options, &["perl", "-e", reads]) else { return };
    assert_eq!(ran.code, 0, "{ran:?}");
    let functions = functions(&recording, &[]);
    let calls = functions.iter().find(|row| row.name == "vfs_read").map_or(0, |row| row.calls);
    // perl reads some files before its program.
    assert!((200..300).contains(&calls), "{functions:?}");
    let latency = hodo(&["latency", "--function", "vfs_read", "--format", "json", &recording]).fine().json();
    assert_eq!(latency["summary"]["count"], calls, "{latency}");
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn programs_of_a_machine_reach_each_other() {
    let script = "use Socket; socket(S, PF_INET, SOCK_STREAM, 0) or die; bind(S, sockaddr_in(0, INADDR_LOOPBACK)) or die; \
                  listen(S, 1); my ($port) = sockaddr_in(getsockname(S)); if (!fork) { socket(C, PF_INET, SOCK_STREAM, 0); \
                  connect(C, sockaddr_in($port, INADDR_LOOPBACK)) or die $!; syswrite C, \"hello\\n\"; exit } \
                  accept(A, S) or die; print scalar <A>";
    let folder = Folder::new();
    let options = ["--filter", "filter __x64_sys_connect"];
    let Some((_, ran)) = record_command(&folder, &options, &["perl", "-e", script]) else { return };
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "hello\n"), "{ran:?}");
}

#[test]
#[ignore = "boots a machine: `cargo judge machine tests`"]
fn the_recorders_own_share_is_left_out() {
    let folder = Folder::new();
    let Some((recording, _)) = record(&folder, &["--icount"], "exec true") else { return };
    let named = |more: &[&str]| -> Vec<String> {
        functions(&recording, more).into_iter().map(|row| row.name).collect()
    };
    let has = |names: &[String], name: &str| names.iter().any(|found| found == name);
    let all = named(&[]);
    assert!(has(&all, "perf_event_mmap") && has(&all, "mmap_region"), "{all:?}");
    let without = named(&["--without-recorder"]);
    assert!(!has(&without, "perf_event_mmap") && has(&without, "mmap_region"), "{without:?}");
}

#[test]
fn a_name_selects_a_thread_while_it_has_it() {
    let folder = Folder::new();
    let out = folder.file("exec.data");
    hodo(&["record", "--quiet", "--engine", "emulate", "-o", &out, "--", "perl", "-e", "exec q(/bin/true)"])
        .fine();
    let instructions = |more: &[&str]| {
        let report = hodo(&[&["report", "functions", "--format", "json", &out], more].concat()).fine().json();
        report["summary"]["instructions"].as_u64().expect("a number")
    };
    let [all, shell, program] = [&[][..], &["--comm", "perl"], &["--comm", "true"]].map(instructions);
    assert!(shell > 0 && program > 0, "{shell} {program}");
    assert_eq!(shell + program, all);
}
