//! Packages tried in a clean Debian: installed, a program recorded, reported and viewed.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use workbench::{Outcome, command, setup};

/// Where packages come from.
const MIRROR: &str = "http://deb.debian.org/debian";

/// A way to install `hodo`.
struct Way {
    name: &'static str,
    /// How its file ends.
    ending: &'static str,
    /// Installs the file `/root/FILE`, which is the first argument.
    install: &'static str,
    /// The folder of the program, as a pattern of the shell.
    programs: &'static str,
    /// What is checked besides the session.
    check: &'static str,
}

/// In this order, as only the last one adds packages that the others could use.
const WAYS: [Way; 3] = [
    Way {
        name: "static program",
        ending: "-static.tar.gz",
        install: "mkdir -p /opt && tar -C /opt -xzf \"$1\"",
        programs: "/opt/hodo-*/bin",
        check: "test -f \"$bin/../share/man/man1/hodo-report.1.gz\"",
    },
    Way {
        name: "wheel",
        ending: ".whl",
        install: "apt-get -qq install -y --no-install-recommends python3-venv > /root/log 2>&1
            python3 -m venv /opt/python
            /opt/python/bin/pip install --quiet --no-index --disable-pip-version-check \"$1\"",
        programs: "/opt/python/bin",
        check: "\"$bin/python\" -I -c '
import hodoscope, pathlib
table = hodoscope.open(\"ls.data\").report(\"functions\")
assert table.summary[\"instructions\"] > 1000, table.summary
assert table.plot().svg.startswith(\"<svg \")
assert list((pathlib.Path(hodoscope.__file__).parent / \"schemas\").glob(\"*.json\"))
print(\"Python:\", table)'",
    },
    Way {
        name: "Debian package",
        ending: "_amd64.deb",
        install: "apt-get -qq install -y --no-install-recommends \"$1\" > /root/log 2>&1",
        programs: "/usr/bin",
        check: "dpkg --verify hodo
            test -f /usr/share/bash-completion/completions/hodo
            test -f /usr/share/hodo/schemas/table.schema.json",
    },
];

/// What a user does, in a shell of the clean system. `timeout` ends what hangs.
const SESSION: &str = r#"
PATH="$bin:$PATH"
cd /root
rm -f *.data page.html address
hodo --version
timeout 300 hodo record -q -o ls.data -- ls -l / > /dev/null
timeout 60 hodo report functions --top 3 -q ls.data
echo 'int main(void) { return 0; }' > program.c
timeout 300 hodo record -q -o gzip.data -- gzip -c /bin/sh > /dev/null
timeout 300 hodo record -q -o python.data -- python3 -c 'print(sum(range(1000)))'
timeout 300 hodo record -q -o gcc.data -- gcc -O1 -o program program.c
for recording in gzip python gcc; do
    timeout 60 hodo report functions --strict --top 3 -q $recording.data
done
timeout 60 hodo view --no-open ls.data > address 2>&1 &
viewer=$!
for try in $(seq 50); do
    sleep 1
    address=$(grep -o 'http://[^ ]*' address || true)
    test -z "$address" || break
done
curl --silent --show-error --fail --location --cookie-jar /root/jar "$address" > page.html
kill $viewer
grep -q '<title>' page.html
echo "viewed: $(wc -c < page.html) bytes"
"#;

/// A clean system, which is deleted with the value.
struct Root(PathBuf);

impl Root {
    /// Installs a minimal system of a release.
    fn new(suite: &str) -> Outcome<Root> {
        let folder = command::target().join("trial");
        fs::create_dir_all(&folder)?;
        let root = Root(folder.join(suite));
        root.delete();
        let mut install = Command::new("mmdebstrap");
        // The lists of packages stay, for those that are installed later.
        let options = ["--quiet", "--variant=minbase", "--skip=cleanup/apt/lists"];
        install.args(options).arg(suite).arg(&root.0).arg(MIRROR);
        command::run(&mut install)?;
        Ok(root)
    }

    /// Runs a script in it, without the variables of this process. Shows what it logged, if it fails.
    fn shell(&self, script: &str, argument: &str) -> Outcome {
        let script = format!("set -e\ntrap 'test $? = 0 || cat /root/log >&2' EXIT\n: > /root/log\n{script}");
        // What is mounted is gone with the process.
        let inside = r#"mount -t proc proc "$1/proc" && exec chroot "$1" /bin/sh -c "$2" sh "$3""#;
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "/bin/sh", "-c", inside, "sh"]).arg(&self.0);
        shell.args([&script, argument]).stdin(Stdio::null());
        shell.env_clear().env("PATH", "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root");
        shell.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C.UTF-8");
        command::quietly(&mut shell)
    }

    fn delete(&self) {
        if self.0.exists() {
            // Nothing is mounted in it: it has only files.
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        self.delete();
    }
}

/// Tries each package of a folder in a clean system of the release `suite`, one after the other.
///
/// # Errors
/// A step fails; its output is on standard error.
pub(crate) fn run(suite: &str, folder: &Path) -> Outcome {
    setup::trial()?;
    let root = Root::new(suite)?;
    root.shell("apt-get -qq install -y --no-install-recommends curl ca-certificates gcc libc6-dev python3-minimal > /root/log 2>&1", "")?;
    for Way { name, ending, install, programs, check } in &WAYS {
        let package = package(folder, ending)?;
        let file = package.file_name().and_then(OsStr::to_str).ok_or("the package's name is no text")?;
        let inside = format!("/root/{file}");
        fs::copy(&package, root.0.join(&inside[1..]))?;
        println!("── {suite}, {name}: {file}, {} bytes", fs::metadata(&package)?.len());
        root.shell(&format!("{install}\nbin=$(echo {programs})\n{SESSION}\n{check}"), &inside)?;
        println!("packages: the {name} works in a clean {suite}");
    }
    Ok(())
}

/// The one package of a folder whose name ends so.
fn package(folder: &Path, ending: &str) -> Outcome<PathBuf> {
    let paths = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Outcome<Vec<PathBuf>>>()?;
    let mut found = paths.into_iter().filter(|path| path.to_string_lossy().ends_with(ending));
    match (found.next(), found.next()) {
        (Some(package), None) => Ok(package),
        (None, _) => Err(format!("{}: no file ends with {ending}", folder.display()).into()),
        _ => Err(format!("{}: several files end with {ending}", folder.display()).into()),
    }
}
