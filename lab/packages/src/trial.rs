//! A package tried in a clean Debian: installed with apt, a program recorded, reported and viewed.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use workbench::{Outcome, command};

/// Where packages come from.
const MIRROR: &str = "http://deb.debian.org/debian";
/// The release whose `qemu-user` loads plugins.
const WITH_PLUGINS: &str = "bookworm";

/// What a user does, in a shell of the clean system. `timeout` ends what hangs.
const SESSION: &str = r#"set -e
cd /root
hodo --version
man -w hodo-report >/dev/null 2>&1 || test -f /usr/share/man/man1/hodo-report.1.gz
test -f /usr/share/bash-completion/completions/hodo
timeout 300 hodo record -q -o ls.data -- ls -l / > /dev/null
timeout 60 hodo report functions --top 3 -q ls.data
timeout 60 hodo view --no-open ls.data > address 2>&1 &
viewer=$!
for try in 1 2 3 4 5 6 7 8 9 10; do
    sleep 1
    address=$(grep -o 'http://[^ ]*' address || true)
    test -z "$address" || break
done
curl --silent --show-error --fail --location --cookie-jar /root/jar "$address" > page.html
kill $viewer
grep -q '<title>' page.html
echo "viewed: $(wc -c < page.html) bytes from $address"
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
        install.args(["--quiet", "--variant=minbase", suite]).arg(&root.0).arg(MIRROR);
        command::run(&mut install)?;
        Ok(root)
    }

    /// Runs a script in it, without the variables of this process.
    fn shell(&self, script: &str) -> Outcome {
        let mut shell = Command::new("chroot");
        shell.arg(&self.0).args(["/bin/sh", "-c", script]).stdin(Stdio::null());
        shell.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("HOME", "/root");
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

/// Tries a package in a clean system of the release `suite`.
///
/// # Errors
/// A step fails; its output is on standard error.
pub(crate) fn run(suite: &str, package: &Path) -> Outcome {
    let root = Root::new(suite)?;
    fs::copy(package, root.0.join("root/hodo.deb"))?;
    root.shell("apt-get -qq install -y --no-install-recommends /root/hodo.deb curl > /root/log 2>&1 || { cat /root/log; exit 1; }")?;
    match suite {
        WITH_PLUGINS => {
            root.shell("apt-get -qq install -y --no-install-recommends qemu-user > /root/log 2>&1")?
        }
        _ => older_emulator(&root)?,
    }
    root.shell(SESSION)?;
    println!("packages: {} works in a clean {suite}", package.display());
    Ok(())
}

/// Puts the emulator of the release whose `qemu-user` loads plugins beside the system's own packages, as the message of
/// `hodo record` advises, with the libraries that it needs.
fn older_emulator(root: &Root) -> Outcome {
    root.shell(
        "timeout 60 hodo record -q -o no.data -- ls > /root/refused 2>&1 && exit 1; cat /root/refused",
    )?;
    root.shell(&format!(
        "set -e
        echo 'deb {MIRROR} {WITH_PLUGINS} main' > /etc/apt/sources.list.d/older.list
        apt-get -qq update
        apt-get -qq install -y --no-install-recommends libglib2.0-0t64 > /root/log 2>&1
        cd /tmp && apt-get -qq download qemu-user/{WITH_PLUGINS}
        dpkg -x qemu-user_*.deb /opt/qemu
        ln -s /opt/qemu/usr/bin/qemu-x86_64 /usr/local/bin/qemu-x86_64 || true
        ldd /opt/qemu/usr/bin/qemu-x86_64 | grep 'not found' && exit 1 || true"
    ))
}
