//! Debian's package format: an archive of `ar` with a version, the control files and the files to install.
//!
//! Source: `deb(5)` and `deb-control(5)`.

use ar::{Builder, Header};
use workbench::Outcome;

use crate::{
    archive,
    contents::{Contents, File, VERSION},
};

/// Returns the package.
pub(crate) fn package(contents: &Contents, time: u32) -> Outcome<Vec<u8>> {
    let control =
        [control_file("control", control(contents)), control_file("md5sums", sums(&contents.files))];
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", archive::compressed(&control, time)?),
        ("data.tar.gz", archive::compressed(&contents.files, time)?),
    ];
    let mut package = Builder::new(Vec::new());
    for (name, bytes) in &members {
        let mut header = Header::new(name.as_bytes().to_vec(), bytes.len() as u64);
        header.set_mode(0o100_644);
        header.set_mtime(time.into());
        package.append(&header, &bytes[..])?;
    }
    Ok(package.into_inner()?)
}

fn control_file(path: &str, text: String) -> File {
    File { path: path.to_owned(), mode: 0o644, bytes: text.into_bytes() }
}

/// The fields that describe the package.
fn control(contents: &Contents) -> String {
    let kibibytes: usize = contents.files.iter().map(|file| file.bytes.len().div_ceil(1024)).sum();
    let depends = match contents.library {
        Some(number) => format!("Depends: libc6 (>= 2.{number}), libgcc-s1\n"),
        None => String::new(),
    };
    format!(
        "Package: hodo\nVersion: {VERSION}\nArchitecture: amd64\nMaintainer: The Hodoscope developers\n\
         Installed-Size: {kibibytes}\n{depends}Recommends: qemu-user\nSuggests: linux-perf, bash-completion\n\
         Section: devel\nPriority: optional\nDescription: records and analyses exact execution traces\n \
         Hodoscope reads Intel Processor Trace and traces of kernel and software events\n \
         (perf, LTTng, CTF, ftrace). It reports which functions a program ran, how often\n \
         and for how long, with exact counts. Where the processor has no Intel PT, it\n \
         records on an emulated one.\n"
    )
}

/// The checksum of each file, as `md5sum` prints it.
fn sums(files: &[File]) -> String {
    files.iter().map(|file| format!("{:x}  {}\n", md5::compute(&file.bytes), file.path)).collect()
}
