//! The package format of RPM.

use rpm::{BuildConfig, CompressionWithLevel, Dependency, FileOptions, PackageBuilder};
use workbench::Outcome;

use crate::contents::{Contents, VERSION};

/// The folder of completions for zsh, as Debian and as distributions with RPM name it.
const ZSH_OF_DEBIAN: &str = "usr/share/zsh/vendor-completions/";
const ZSH_OF_RPM: &str = "usr/share/zsh/site-functions/";

/// Returns the package.
pub(crate) fn package(contents: &Contents, time: u32) -> Outcome<Vec<u8>> {
    let summary = "Records and analyses exact execution traces";
    let mut builder = PackageBuilder::new("hodo", VERSION, "MIT OR Apache-2.0", "x86_64", summary);
    builder
        .using_config(BuildConfig::default().compression(CompressionWithLevel::Gzip(9)).source_date(time))
        // The name of the machine that builds is no part of a package.
        .build_host("localhost")
        .release("1")
        .description("Reads Intel Processor Trace and traces of kernel and software events.")
        .recommends(Dependency::any("qemu-user"));
    if let Some(number) = contents.library {
        builder.requires(Dependency::any(format!("libc.so.6(GLIBC_2.{number})(64bit)")));
        builder.requires(Dependency::any("libgcc_s.so.1()(64bit)"));
    }
    for file in &contents.files {
        let path = format!("/{}", file.path.replacen(ZSH_OF_DEBIAN, ZSH_OF_RPM, 1));
        let options = FileOptions::new(path).permissions(file.mode);
        builder.with_file_contents(file.bytes.clone(), options)?;
    }
    let mut bytes = Vec::new();
    builder.build()?.write(&mut bytes)?;
    Ok(bytes)
}
