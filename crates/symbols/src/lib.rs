//! From addresses of a file to functions, and from there to inlined frames and lines.
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
//! Run-time compilers and the kernel leave lists of functions of their own: [`JitDump`], [`perf_map`],
//! [`kallsyms`].
//!
//! Addresses are the virtual addresses that the file itself states (`sh_addr`, `st_value`, `p_vaddr`);
//! [`Module::address`] leads there from the file offset that a mapping tells. Nothing here opens a
//! file: the caller hands in bytes. Damaged input never panics: a [`Module`] keeps what could be read
//! and says what could not ([`Module::problem`]).

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
