//! `cargo judge libipt tools`: Intel's own tools and their tests, with our library in place of Intel's.
//!
//! ```text
//! crate libipt-sys ─┬─ pttc, ptdump, ptxed (with crate xed-sys) ─► each test of `test/src` ─┐
//!                   └─ ptunit's tests that call the library alone ──────────────────────────┴─► what passes with Intel's
//!                                                                                               library passes with ours
//! ```
//!
//! The crate has libipt as of 2019, a little newer than the library's release: an option of `ptxed` that the released interface
//! lacks is left out, so a test of it passes with neither library.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Outcome, command,
    crates::fetch,
    setup::{self, Need},
};

const CRATES: [(&str, &str); 2] = [("libipt-sys", "0.1.4"), ("xed-sys", "0.6.0")];
/// Lines of `ptxed.c` with these parts are left out: a flag that came after the interface, and two names that XED dropped.
const LEFT_OUT: [&str; 3] = ["keep_tcal_on_ovf = 1;", "XED_ICLASS_SYSCALL_AMD", "XED_ICLASS_SYSRET_AMD"];
/// Internal sources that the tools compile in.
const SHARED: [&str; 2] = ["libipt/src/pt_cpu.c", "libipt/src/posix/pt_cpuid.c"];
const DECODERS: [&str; 2] = ["insn", "block"];

/// Intel's sources and the built tools.
struct Tools {
    /// The root of libipt's sources.
    sources: PathBuf,
    folder: PathBuf,
}

/// Judges with the folder of our library.
pub(super) fn run(folder: &Path, ours: &Path) -> Outcome {
    setup::ensure(Need::Judge)?;
    let folder = folder.join("tools");
    let crates = fetch(&folder, CRATES)?;
    let tools = Tools { sources: crates.join("libipt-sys/libipt"), folder };
    tools.build(&crates.join("xed-sys"))?;
    let mut lost = tools.unit_tests(ours)?;
    for decoder in DECODERS {
        lost.extend(tools.compare(decoder, ours)?);
    }
    if lost.is_empty() { Ok(()) } else { Err(lost.join("\n").into()) }
}

impl Tools {
    fn compiler(&self, program: &str) -> Command {
        let mut compiler = Command::new(program);
        compiler.args(["-O1", "-w", "-DFEATURE_THREADS", "-DPT_VERSION_MAJOR=2", "-DPT_VERSION_MINOR=0"]);
        compiler.args(["-DPT_VERSION_PATCH=0", "-DPT_VERSION_BUILD=0", "-DPT_VERSION_EXT=\"\""]);
        for include in ["include", "include/posix", "libipt/internal/include", "pttc/include"] {
            compiler.arg("-I").arg(self.sources.join(include));
        }
        for include in ["ptunit/include", "ptxed/include"] {
            compiler.arg("-I").arg(self.sources.join(include));
        }
        compiler
    }

    fn build(&self, xed: &Path) -> Outcome {
        let kit = self.folder.join("xed");
        let archive = kit.join("lib/libxed.a");
        if !archive.is_file() {
            let mut build = Command::new("python3");
            build.args(["-B", "mfile.py", "--silent", "--no-werror", "--opt=0"]);
            build.arg(format!("--build-dir={}", self.folder.join("xed-objects").display()));
            build.arg(format!("--prefix={}", kit.display())).arg("install").current_dir(xed.join("xed"));
            command::run(build.env("PYTHONPATH", xed.join("mbuild")).stdout(Stdio::null()))?;
        }
        let ptxed = fs::read_to_string(self.sources.join("ptxed/src/ptxed.c"))?;
        let is_kept = |line: &&str| !LEFT_OUT.iter().any(|part| line.contains(part));
        let changed = self.folder.join("ptxed.c");
        fs::write(&changed, ptxed.lines().filter(is_kept).collect::<Vec<_>>().join("\n") + "\n")?;
        let of_pttc = ["errcode", "file", "parse", "pttc", "util", "yasm", "main", "posix/util"];
        let of_pttc: Vec<PathBuf> =
            of_pttc.iter().map(|name| PathBuf::from(format!("pttc/src/{name}.c"))).collect();
        let of_ptdump = ["ptdump/src/ptdump.c", "libipt/src/pt_last_ip.c", "libipt/src/pt_time.c"];
        for (tool, files) in [
            ("pttc", of_pttc),
            ("ptdump", of_ptdump.iter().map(PathBuf::from).collect()),
            ("ptxed", vec![changed]),
        ] {
            let mut compiler = self.compiler("gcc");
            compiler.arg("-D_GNU_SOURCE").arg("-o").arg(self.folder.join(tool));
            let files = files.into_iter().chain(SHARED.map(PathBuf::from));
            compiler.args(files.map(|file| self.sources.join(file)));
            compiler.arg("-I").arg(kit.join("include")).arg("-I").arg(kit.join("include/xed")).arg("-lipt");
            command::quietly(compiler.arg(&archive))?;
        }
        Ok(())
    }

    /// Runs each test with both libraries; returns those that pass with Intel's only.
    fn compare(&self, decoder: &str, ours: &Path) -> Outcome<Vec<String>> {
        let [intel, own] = [("intel", None), ("ours", Some(ours))]
            .map(|(name, library)| self.results(decoder, name, library));
        let (intel, own) = (intel?, own?);
        let passed = intel.values().filter(|passed| **passed).count();
        let only = |one: &BTreeMap<String, bool>, other: &BTreeMap<String, bool>| -> Vec<String> {
            let names = one.iter().filter(|(name, passed)| **passed && other.get(*name) != Some(&true));
            names.map(|(name, _)| name.clone()).collect()
        };
        let (lost, gained) = (only(&intel, &own), only(&own, &intel));
        let neither: Vec<&String> = intel.keys().filter(|name| !intel[*name] && !own[*name]).collect();
        println!(
            "{decoder:6} {} tests: {passed} pass with libipt, {} of these with ours; with ours only: {gained:?}; with neither: {neither:?}",
            intel.len(),
            passed - lost.len(),
        );
        Ok(lost.into_iter().map(|name| format!("{decoder}: {name} passes with libipt only")).collect())
    }

    /// Runs Intel's script for each test, with a library in a folder or the system's; returns which pass.
    fn results(&self, decoder: &str, name: &str, library: Option<&Path>) -> Outcome<BTreeMap<String, bool>> {
        let folder = self.folder.join(format!("{decoder}-{name}"));
        fs::create_dir_all(&folder)?;
        let mut results = BTreeMap::new();
        for entry in fs::read_dir(self.sources.join("test/src"))? {
            let test = entry?.path();
            let mut script = Command::new("bash");
            script.arg(self.sources.join("script/test.bash")).arg("-f");
            for (option, tool) in [("-g", "pttc"), ("-d", "ptdump"), ("-x", "ptxed")] {
                script.arg(option).arg(self.folder.join(tool));
            }
            script.arg("-X").arg(format!("--{decoder}-decoder")).arg(&test).current_dir(&folder);
            if let Some(library) = library {
                script.env("LD_LIBRARY_PATH", library);
            }
            let name = test.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            results.insert(name, script.output()?.status.success());
        }
        if results.is_empty() { Err("the crate has no tests of libipt".into()) } else { Ok(results) }
    }

    /// Runs ptunit's tests that need nothing inside of libipt; returns those that fail with ours.
    fn unit_tests(&self, ours: &Path) -> Outcome<Vec<String>> {
        let [suite, files] = ["ptunit", "ptunit_mkfile"].map(|name| self.folder.join(format!("{name}.o")));
        for (object, source) in
            [(&suite, "ptunit/src/ptunit.c"), (&files, "ptunit/src/posix/ptunit_mkfile.c")]
        {
            let mut compiler = self.compiler("gcc");
            command::quietly(compiler.arg("-c").arg("-o").arg(object).arg(self.sources.join(source)))?;
        }
        let (mut ran, mut inside, mut lost) = (Vec::new(), 0, Vec::new());
        for entry in fs::read_dir(self.sources.join("libipt/test/src"))? {
            let test = entry?.path();
            let is_cpp = test.extension().is_some_and(|extension| extension == "cpp");
            let program = self.folder.join(test.file_stem().unwrap_or_default());
            let mut compiler = self.compiler(if is_cpp { "g++" } else { "gcc" });
            compiler.arg("-o").arg(&program).arg(&test).args([&suite, &files]).args(["-lipt", "-lpthread"]);
            if !compiler.output()?.status.success() {
                inside += 1;
                continue;
            }
            let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !Command::new(&program).env("LD_LIBRARY_PATH", ours).output()?.status.success() {
                lost.push(format!("{name} fails with our library"));
            }
            ran.push(name);
        }
        println!(
            "ptunit: {ran:?} ran; {inside} tests call functions inside of libipt, which no other library has"
        );
        if ran.is_empty() { Err("no test of ptunit could be linked".into()) } else { Ok(lost) }
    }
}
