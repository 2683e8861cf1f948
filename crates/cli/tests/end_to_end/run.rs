//! Runs `hodo` and keeps its output.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// Far longer than any run takes; a longer run hangs.
const PATIENCE: Duration = Duration::from_secs(300);

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stderr: String,
    pub(crate) stdout: String,
}

impl Ran {
    /// Asserts that the run succeeded.
    #[track_caller]
    pub(crate) fn fine(self) -> Ran {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Parses the printed JSON.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Returns a command for the tested program, with the emulated processor built for it.
pub(crate) fn command<A: AsRef<OsStr>>(arguments: &[A]) -> Command {
    let hodo = Path::new(env!("CARGO_BIN_EXE_hodo"));
    let mut command = Command::new(hodo);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if std::env::var_os("HODO_EMULATOR").is_none() {
        // Cargo builds the emulator in the folder of `hodo`'s libraries.
        command.env("HODO_EMULATOR", hodo.with_file_name("deps").join("libhodo_emulator.so"));
    }
    command
}

/// Runs `hodo` to its end.
#[track_caller]
pub(crate) fn hodo<A: AsRef<OsStr>>(arguments: &[A]) -> Ran {
    let shown: Vec<_> = arguments.iter().map(|argument| argument.as_ref().to_owned()).collect();
    wait(command(arguments).spawn().expect("hodo starts")).unwrap_or_else(|| panic!("{shown:?} hangs"))
}

/// Waits for the result of a run; `None` if it hangs.
pub(crate) fn wait(child: Child) -> Option<Ran> {
    let process = rustix::process::Pid::from_child(&child);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = receiver.recv_timeout(PATIENCE) else {
        let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        return None;
    };
    let output = output.expect("output can be read");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("hodo writes UTF-8");
    let code = output.status.code().unwrap_or_else(|| panic!("{}", output.status));
    Some(Ran { code, stdout: text(output.stdout), stderr: text(output.stderr) })
}

/// Returns what `hodo help` says of each report that needs no options.
pub(crate) fn reports() -> Vec<Value> {
    let help = hodo(&["help", "--json"]).fine().json();
    let reports = help["reports"].as_array().expect("reports").iter();
    reports.filter(|report| report["requires"] == json!([])).cloned().collect()
}

/// Returns the text of a cell, as in a store.
pub(crate) fn word(cell: &Value) -> String {
    match cell {
        Value::Null => "?".to_owned(),
        Value::String(text) => text.clone(),
        number => number.to_string(),
    }
}

/// Returns the path of a fixture.
pub(crate) fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(name);
    path.into_os_string().into_string().expect("a path of UTF-8")
}

/// Returns the rows of a JSON table as objects.
pub(crate) fn rows(table: &Value) -> Vec<Value> {
    let columns = table["columns"].as_array().expect("columns").iter();
    let names = columns.map(|column| column["name"].as_str().expect("a name").to_owned());
    let object = |row: &Value| {
        Value::Object(names.clone().zip(row.as_array().expect("a row").iter().cloned()).collect())
    };
    table["rows"].as_array().expect("rows").iter().map(object).collect()
}

/// A folder that is deleted with the test.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        Folder(TempDir::with_prefix("hodo-test-").expect("a temporary folder"))
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.0.path().canonicalize().expect("the folder is there")
    }

    /// Returns the path of a file in it, as an argument.
    pub(crate) fn file(&self, name: &str) -> String {
        self.path().join(name).into_os_string().into_string().expect("a path of UTF-8")
    }

    /// Writes a file in it.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.file(name);
        fs::write(&path, bytes).expect("the file can be written");
        path
    }

    /// Returns the sorted names of the files in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).expect("the folder is there");
        let name = |entry: std::io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
        let mut names: Vec<String> = entries.filter_map(name).collect();
        names.sort();
        names
    }
}

/// Installs npm packages once, given their package.json, and returns the folder with them.
pub(crate) fn node_modules(name: &str, packages: &str) -> PathBuf {
    // Tests run at the same time, and some need the same packages.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let list = folder.join("package.json");
    let modules = folder.join("node_modules");
    if fs::read_to_string(&list).is_ok_and(|known| known == packages) && modules.exists() {
        return modules;
    }
    fs::create_dir_all(&folder).unwrap();
    fs::write(&list, packages).unwrap();
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&folder);
    let made = npm.output().expect("npm, of Node.js 18 or later, installs the client of a test");
    assert!(made.status.success(), "{made:?}");
    modules
}
