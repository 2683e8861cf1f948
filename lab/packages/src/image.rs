//! The container image, as an archive in the format of OCI: Debian 13 with the `.deb`, built by buildah from Debian's archive and the
//! `Containerfile`, without a registry.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use workbench::{Outcome, command, setup};

use crate::{
    contents::VERSION,
    trial::root::{self, DEBIAN_13},
};

/// How the archive's name ends.
pub(crate) const ENDING: &str = "-image.tar";
/// The image's name, and that of what it is built on.
const NAME: &str = "localhost/hodo";
const BASE: &str = "localhost/hodo-base";

/// What a user does in a container: records and reports.
const SESSION: &str = "set -e
cd /tmp
hodo record --engine native -q -o ls.data -- ls -l / > /dev/null
hodo record --engine native -q -o gzip.data -- gzip -c /bin/sh > /dev/null
hodo report functions --top 3 -q ls.data
hodo report functions --strict --top 3 -q gzip.data";

/// The storage of buildah, a folder of its own.
struct Storage(PathBuf);

impl Storage {
    /// Makes an empty one.
    fn new() -> Outcome<Storage> {
        setup::image()?;
        let storage = Storage(command::target().join("image"));
        storage.delete();
        fs::create_dir_all(&storage.0)?;
        Ok(storage)
    }

    fn buildah(&self, arguments: &[&str]) -> Command {
        let mut buildah = Command::new("buildah");
        buildah.arg("--root").arg(self.0.join("root")).arg("--runroot").arg(self.0.join("run"));
        // It works wherever files can be written, and inside of containers too.
        buildah.args(["--storage-driver", "vfs"]).args(arguments);
        buildah
    }

    /// Makes a container of an image; returns its name.
    fn container(&self, image: &str) -> Outcome<String> {
        Ok(command::capture(&mut self.buildah(&["from", image]))?.trim().to_owned())
    }

    fn delete(&self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.delete();
    }
}

/// Builds the image of the `.deb` in a folder, and writes its archive there.
///
/// # Errors
/// A program fails.
pub(crate) fn make(folder: &Path) -> Outcome {
    let storage = Storage::new()?;
    let base = storage.0.join("base.tar");
    root::install(DEBIAN_13, &base, &[])?;
    let container = storage.container("scratch")?;
    command::quietly(storage.buildah(&["add", "--quiet", &container]).arg(base).arg("/"))?;
    command::quietly(&mut storage.buildah(&["commit", "--quiet", "--rm", &container, BASE]))?;
    let argument = format!("BASE={BASE}");
    let mut build =
        storage.buildah(&["bud", "--isolation", "chroot", "--build-arg", &argument, "--tag", NAME]);
    build.arg("--file").arg(command::root().join("Containerfile")).arg(folder);
    command::quietly(&mut build)?;
    let archive = folder.join(format!("hodo-{VERSION}{ENDING}"));
    if archive.exists() {
        fs::remove_file(&archive)?;
    }
    let target = format!("oci-archive:{}", archive.display());
    command::quietly(&mut storage.buildah(&["push", "--quiet", NAME, &target]))?;
    println!("{:>10} bytes  {}", fs::metadata(&archive)?.len(), archive.display());
    Ok(())
}

/// Records and reports in a container of an archived image.
///
/// # Errors
/// A step fails; its output is on standard error.
pub(crate) fn try_it(archive: &Path) -> Outcome {
    println!("── container image: {}", archive.display());
    let storage = Storage::new()?;
    let container = storage.container(&format!("oci-archive:{}", archive.display()))?;
    let run = ["run", "--isolation", "chroot", &container, "--", "/bin/sh", "-c", SESSION];
    command::quietly(&mut storage.buildah(&run))?;
    println!("packages: the container image works");
    Ok(())
}
