//! The recordings of the native recorder: their file, the tables of processes, the logs of threads, and logs as Intel PT
//! packets.
//!
//! ```text
//! file ──file::blocks──► Recording ─┬─ Table of each process: exits as paths of spans, mappings, notes, generated code
//!                                   └─ threads ──items──► Item: path, signal, system call, time, loss ──packets──► Intel PT
//! ```

#![deny(missing_docs)]

mod counted_time;
mod entries;
mod file;
mod items;
pub mod packets;
mod recording;
mod table;

pub use hodo_native_runtime::wire::{exit, note};

pub use counted_time::count_time;
pub use entries::{DecodedBlock, Entries, Entry};
pub use file::{Block, BlockHeader, BlockKind, Codec, FileError, MAGIC, Writer, empty};
pub use items::{Digest, Item, Items};
pub use packets::Log;
pub use recording::{Clocks, Recording, Snapshot, Thread};
pub use table::{Code, Map, Name, Note, Parent, Part, Path, Span, Summary, Table, Unmap};
