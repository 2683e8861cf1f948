//! Maps file addresses to functions, inlined frames and source lines.
//!
//! ```text
//!             ┌ symbols (.symtab, .dynsym, separate debug file) ┐
//! ELF bytes ──┤ PLT entries, named by their relocations         ├─► Module: a table of functions
//!             │ ranges of .eh_frame, for code without symbols   │      │ that covers every address
//!             └ executable segments and sections                ┘      │
//!                                                                      ▼
//!                            Symbols: the modules of an experiment ─► FunctionId ─► name
//!
//! ELF bytes ──► DebugSections (decompressed where needed) ──► Lines: address ─► frames, innermost first
//! ```
//!
//! Lists of functions from run-time compilers and the kernel: [`JitDump`], [`perf_map`], [`kallsyms`].
//!
//! Addresses are the virtual addresses in the file (`sh_addr`, `st_value`, `p_vaddr`); [`Module::address`] converts
//! the file offset of a mapping. This crate opens no files: the caller passes bytes. Damaged input never panics: a
//! [`Module`] keeps what is readable and reports the rest ([`Module::problem`]).

mod demangle;
mod elf;
mod jitdump;
mod lines;
mod lists;
mod module;
mod names;
mod plt;
mod rows;
mod symbols;
mod table;
mod unwind;

pub use demangle::demangle;
pub use elf::{DebugReferences, debug_references, loaded_segments, symbol_address};
pub use jitdump::{JitDump, JitRecord, JitRecordKind};
pub use lines::{DebugSections, Frame, Lines};
pub use lists::{KernelEntry, MapEntry, kallsyms, perf_map};
pub use module::{Function, Module};
pub use rows::Rows;
pub use symbols::Symbols;
