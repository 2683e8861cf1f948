//! Builds the runtime that the recorder puts into programs: an image without libc, at a fixed address.

#![allow(missing_docs)]

use std::{env, error::Error, fs, ops::Range, path::PathBuf, process::Command};

/// Where the image lies in each program, as in `native/runtime/src/layout.rs`.
const IMAGE: u64 = 0x2000_0000_0000;
/// `R_X86_64_RELATIVE`, the only kind of relocation in a static program.
const RELATIVE: u64 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let source = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../native/runtime/src");
    println!("cargo::rerun-if-changed={}", source.display());
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let image = out.join("runtime.bin");
    let target = env::var("TARGET")?;
    if !["x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl"].contains(&target.as_str()) {
        // The recorder refuses to record there.
        return Ok(fs::write(image, [])?);
    }
    let program = out.join("runtime");
    let mut rustc = Command::new(env::var("RUSTC")?);
    rustc.args(["--edition", "2024", "--crate-type", "bin", "--crate-name", "hodo_native_image"]);
    rustc.args(["--target", &target, "-C", "opt-level=3", "-C", "panic=abort", "-C", "codegen-units=1"]);
    if target.ends_with("musl") {
        // The image has a start of its own, and no libc.
        rustc.args(["-C", "link-self-contained=no"]);
    }
    rustc.args(["-C", "relocation-model=pie", "-C", "force-unwind-tables=no", "-C", "debuginfo=0"]);
    for argument in ["-nostartfiles", "-nostdlib", "-static-pie", "-Wl,--no-dynamic-linker", "-Wl,-z,norelro"]
    {
        rustc.args(["-C", &format!("link-arg={argument}")]);
    }
    rustc.arg(source.join("image.rs")).arg("-o").arg(&program);
    // Flags that are meant for the recorder, such as instrumentation, have no place in the image.
    rustc.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    if !rustc.status()?.success() {
        return Err("the runtime did not build".into());
    }
    fs::write(image, flatten(&fs::read(program)?)?)?;
    Ok(())
}

/// Lays out an ELF program as it is in memory at [`IMAGE`]. The first eight bytes are the offset of its entry.
fn flatten(elf: &[u8]) -> Result<Vec<u8>, Box<dyn Error>> {
    let word = |offset: u64, length: usize| -> Result<u64, Box<dyn Error>> {
        let bytes = elf
            .get(offset as usize..offset as usize + length)
            .ok_or("the runtime's ELF file is cut short")?;
        Ok(bytes.iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    };
    // e_entry, e_phoff and e_phnum; program headers have 56 bytes.
    let (entry, headers, count) = (word(24, 8)?, word(32, 8)?, word(56, 2)?);
    let mut memory = Vec::new();
    let mut dynamic = None;
    for header in (0..count).map(|index| headers + index * 56) {
        let (kind, offset, address) = (word(header, 4)?, word(header + 8, 8)?, word(header + 16, 8)?);
        let (in_file, in_memory) = (word(header + 32, 8)?, word(header + 40, 8)?);
        match kind {
            // PT_LOAD and PT_DYNAMIC.
            1 => {
                memory.resize(memory.len().max((address + in_memory) as usize), 0);
                let bytes = elf.get(offset as usize..(offset + in_file) as usize).ok_or("a cut segment")?;
                memory[address as usize..][..bytes.len()].copy_from_slice(bytes);
            }
            2 => dynamic = Some(offset..offset + in_file),
            _ => {}
        }
    }
    relocate(&mut memory, dynamic.ok_or("the runtime has no relocations")?, &word)?;
    let mut image = entry.to_le_bytes().to_vec();
    image.extend(memory);
    Ok(image)
}

/// Applies the relocations of the dynamic section, all of which are relative.
fn relocate(
    memory: &mut [u8],
    dynamic: Range<u64>,
    word: &dyn Fn(u64, usize) -> Result<u64, Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    // DT_RELA and DT_RELASZ: the position and the size of the table. An entry of this section has 16 bytes, one of the
    // table 24.
    let (mut table, mut size) = (0, 0);
    for entry in dynamic.step_by(16) {
        match word(entry, 8)? {
            7 => table = word(entry + 8, 8)?,
            8 => size = word(entry + 8, 8)?,
            _ => {}
        }
    }
    let read = |memory: &[u8], address: u64| {
        let bytes =
            memory.get(address as usize..address as usize + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map(u64::from_le_bytes).ok_or("a relocation outside of the runtime")
    };
    for entry in (table..table + size).step_by(24) {
        let (address, kind) = (read(memory, entry)?, read(memory, entry + 8)?);
        let value = read(memory, entry + 16)?;
        if kind != RELATIVE {
            return Err(format!("a relocation of kind {kind}").into());
        }
        // What is relocated must lie in the runtime.
        read(memory, address)?;
        memory[address as usize..][..8].copy_from_slice(&(IMAGE + value).to_le_bytes());
    }
    Ok(())
}
