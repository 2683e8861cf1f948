//! The static program in a system without a C library of GNU, as Alpine is: busybox, musl, and nothing else.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use workbench::{Outcome, command, setup, workloads};

use super::root::Root;

/// musl's C library, which is its loader too, and the path where programs look for the loader.
const LIBRARY: &str = "/usr/lib/x86_64-linux-musl/libc.so";
const LOADER: &str = "lib/ld-musl-x86_64.so.1";

/// What a user does. `fib` is a program that needs musl.
const SESSION: &str = r#"
mkdir -p /opt /dev
mknod -m 666 /dev/null c 1 3
tar -C /opt -xzf "$1"
PATH=/opt/$(ls /opt)/bin:$PATH
cd /root
hodo --version
record() {
    recording=$1.data
    shift
    timeout 300 hodo record --engine native -q -o $recording -- "$@"
}
record ls ls -l / > /dev/null
record gzip gzip -c /bin/busybox > /dev/null
record sh sh -c 'n=0; while [ $n -lt 1000 ]; do n=$((n + 1)); done'
record fib /root/fib 15
for recording in ls gzip sh; do
    timeout 60 hodo report functions --strict --top 3 -q $recording.data
done
timeout 60 hodo report functions --strict --top 3 -q fib.data > fib.txt
cat fib.txt
grep -q ' fib ' fib.txt
"#;

/// Tries the archive with the static program.
pub(super) fn run(archive: &Path) -> Outcome {
    setup::trial_without_libc()?;
    let root = Root::empty("musl")?;
    for folder in ["bin", "lib", "proc", "root", "tmp"] {
        fs::create_dir(root.0.join(folder))?;
    }
    fs::copy("/bin/busybox", root.0.join("bin/busybox"))?;
    for name in command::capture(Command::new("/bin/busybox").arg("--list"))?.lines() {
        if name != "busybox" {
            symlink("busybox", root.0.join("bin").join(name))?;
        }
    }
    fs::copy(LIBRARY, root.0.join(LOADER))?;
    let program: PathBuf = root.0.join("root/fib");
    let mut compile = Command::new("musl-gcc");
    compile.args(["-O1", "-g", "-o"]).arg(&program).arg(workloads::source("fib.c"));
    command::quietly(&mut compile)?;
    println!("── musl and busybox, static program: {}", archive.display());
    root.shell(SESSION, &root.receive(archive)?)?;
    println!("packages: the static program works with musl and busybox alone");
    Ok(())
}
