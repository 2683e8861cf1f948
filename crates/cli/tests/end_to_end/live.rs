//! Live LTTng sessions, read from LTTng's relay daemon.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::{self, File, Permissions},
    io,
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::run::{command, hodo, wait};

const THREADS: u64 = 4;
const EVENTS: u64 = 100_000;
/// Far longer than any test here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// LTTng daemons of this test, which end with it.
pub(crate) struct Lttng {
    pub(crate) folder: TempDir,
    /// The relay daemon's ports: control, data, live.
    ports: [u16; 3],
    daemons: Vec<Child>,
}

impl Drop for Lttng {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = Command::new("kill").arg(daemon.id().to_string()).status();
            let _ = daemon.wait();
        }
    }
}

/// Returns a command that does not run as root: root's daemons are the machine's own.
fn unprivileged(program: &OsStr, home: &Path) -> Command {
    let is_root = fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    let mut command = Command::new(if is_root { OsStr::new("setpriv") } else { program });
    if is_root {
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    }
    command.env("HOME", home).env("LTTNG_HOME", home).env("LTTNG_UST_ALLOW_BLOCKING", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what} never happens");
        thread::sleep(Duration::from_millis(50));
    }
}

impl Lttng {
    pub(crate) fn start() -> Lttng {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
        let free = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = free.each_ref().map(|listener| listener.local_addr().unwrap().port());
        drop(free);
        let mut lttng = Lttng { folder, ports, daemons: Vec::new() };
        let url = |port: u16| format!("tcp://127.0.0.1:{port}");
        let mut relay = lttng.command("lttng-relayd");
        relay.arg(format!("--output={}", lttng.folder.path().join("relay").display()));
        relay.args(["--control-port", &url(ports[0]), "--data-port", &url(ports[1])]);
        relay.args(["--live-port", &url(ports[2])]);
        lttng.daemons.push(relay.spawn().expect("lttng-relayd starts"));
        let sessions = lttng.command("lttng-sessiond").arg("--no-kernel").spawn();
        lttng.daemons.push(sessions.expect("lttng-sessiond starts"));
        until("the session daemon's answer", || lttng.try_lttng("list"));
        until("the relay daemon's answer", || hodo(&["script", &lttng.address()]).code == 0);
        lttng
    }

    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        unprivileged(program.as_ref(), self.folder.path())
    }

    fn try_lttng(&self, arguments: &str) -> bool {
        self.command("lttng")
            .arg("-n")
            .args(arguments.split(' '))
            .status()
            .is_ok_and(|status| status.success())
    }

    pub(crate) fn lttng(&self, arguments: &str) {
        assert!(self.try_lttng(arguments), "lttng {arguments}");
    }

    fn address(&self) -> String {
        format!("net://127.0.0.1:{}", self.ports[2])
    }

    /// Returns the address of a session.
    fn session(&self, name: &str) -> String {
        let list = hodo(&["script", &self.address()]).fine().stdout;
        let line = list.lines().find(|line| line.contains(&format!("/{name} ")));
        line.unwrap_or_else(|| panic!("{name} is not in {list}")).split(' ').next().unwrap().to_owned()
    }

    pub(crate) fn record(&self, name: &str) {
        let [control, data, _] = self.ports;
        let urls = format!("--ctrl-url=tcp://127.0.0.1:{control} --data-url=tcp://127.0.0.1:{data}");
        self.lttng(&format!("create {name} --live=200000 {urls}"));
        let channel = "--blocking-timeout=inf --subbuf-size=256K --num-subbuf=8 ch";
        self.lttng(&format!("enable-channel -u -s {name} {channel}"));
        self.lttng(&format!("enable-event -u -s {name} -c ch lttng_ust_tracef:*"));
        self.lttng(&format!("start {name}"));
    }
}

/// Returns a port whose first connection ends after `bytes` bytes. All connections are forwarded to `port`.
fn unreliable(port: u16, bytes: u64) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let forward = move |viewer: TcpStream, most: u64| {
        let daemon = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (mut requests, mut to_daemon) = (viewer.try_clone().unwrap(), daemon.try_clone().unwrap());
        thread::spawn(move || io::copy(&mut requests, &mut to_daemon));
        let _ = io::copy(&mut io::Read::take(&daemon, most), &mut &viewer);
        let _ = (viewer.shutdown(Shutdown::Both), daemon.shutdown(Shutdown::Both));
    };
    thread::spawn(move || {
        for (number, viewer) in listener.incoming().enumerate() {
            let most = if number == 0 { bytes } else { u64::MAX };
            thread::spawn(move || forward(viewer.unwrap(), most));
        }
    });
    own
}

/// Reads a session into a file until it ends.
fn read(address: &str, file: &Path) -> Child {
    let out = File::create(file).unwrap();
    command(&["script", "--format", "jsonl", "-q", address]).stdout(out).spawn().expect("hodo starts")
}

/// Asserts that each event of each thread is there once. Events that the tracer reports as lost count, too: on a busy machine
/// it loses some, although it is set to wait for room.
#[track_caller]
fn check(file: &Path) {
    let text = fs::read_to_string(file).unwrap();
    let (mut messages, mut lost) = (HashSet::new(), 0);
    for line in text.lines() {
        if let Some((_, count)) = line.split_once("\"lost_events\":") {
            lost += count.split(',').next().and_then(|count| count.parse::<u64>().ok()).expect("a number");
            continue;
        }
        assert!(!line.contains("\"lost_"), "{line}");
        let message = line.split("\"msg\":\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        assert!(messages.insert(message), "{line} comes twice");
    }
    assert_eq!(messages.len() as u64 + lost, THREADS * EVENTS, "{lost} lost");
}

#[test]
fn sessions_are_read_while_they_are_recorded_and_nothing_is_missing_or_twice() {
    let lttng = Lttng::start();
    let program = lttng.folder.path().join("tracepoints");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/workloads/tracepoints.c");
    let mut compiler = Command::new("gcc");
    compiler.arg("-O2").arg("-o").arg(&program).arg(source).args(["-llttng-ust", "-lpthread"]);
    assert!(compiler.status().unwrap().success());
    ["one", "two"].into_iter().for_each(|name| lttng.record(name));
    let (one, two) = (lttng.session("one"), lttng.session("two"));
    let file = |name: &str| lttng.folder.path().join(name);
    // This connection breaks within a packet, and is opened again.
    let port = unreliable(lttng.ports[2], 300_000);
    let whole = read(&one.replace(&lttng.ports[2].to_string(), &port.to_string()), &file("one"));
    let mut killed = read(&two, &file("killed"));
    let mut traced = lttng.command(&program);
    let mut traced = traced.args([THREADS.to_string(), EVENTS.to_string()]).spawn().unwrap();
    until("an event", || fs::metadata(file("killed")).is_ok_and(|file| file.len() > 0));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let restarted = read(&two, &file("two"));
    assert!(traced.wait().unwrap().success());
    // A session that ends before the viewer reconnects is gone.
    until("a third of the events", || fs::metadata(file("one")).is_ok_and(|file| file.len() > 20_000_000));
    lttng.lttng("stop one");
    lttng.lttng("stop two");
    // The error for an unknown session lists the existing ones. A further viewer of an existing one would be refused.
    assert!(hodo(&["script", &format!("{two}x")]).stderr.contains("no such session; there are"));
    lttng.lttng("destroy --no-wait one");
    lttng.lttng("destroy --no-wait two");
    for reader in [whole, restarted] {
        let ran = wait(reader).expect("the reader ends with its session");
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    check(&file("one"));
    check(&file("two"));
}
