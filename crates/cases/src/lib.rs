//! Cases of Intel PT as data: code, packets, and what they must decode to, in one file each.
//!
//! ```text
//!                 ┌─ [code] ────► assembler ──► Assembly: bytes and labels ─┐
//! file ──► Case ──┼─ [packets] ─► Trace: bytes ◄────────── labels ──────────┼─► decode ──► lines
//!                 └─ [expect] ◄──────────── are they the same? ─────────────┴──────────────┘
//! ```
//!
//! A case reads from top to bottom:
//!
//! ```text
//! ; The behaviour that it shows, and its section in the manual.
//! cpu 6/85/4                       ; optional: family, model and stepping, in decimal
//! config noretcomp mtc_period=3    ; optional: settings that packets do not contain
//! differs libipt: why              ; optional: a decoder that decodes it differently
//!
//! [code]                           ; for nasm; `[code from=3e8]`: since that tick; `[code guest]`: a guest's;
//!                                  ; `[code host]`: the host's, and no guest's
//! bits 64
//! org 0x401000
//! start:  nop
//!
//! [packets]                        ; as `hodo script --packets` prints them, and `db` for bytes
//! PSB
//! FUP 64:%start                    ; the address of a label
//! PSBEND
//!
//! [expect]                         ; instructions are indented, events are not
//! ```

mod assembly;
mod case;
mod decode;
mod error;
mod packets;

pub use assembly::{Assembly, Section, assemble};
pub use case::{Case, Code, Differs, Line, Owner};
pub use decode::{decode, fold};
pub use error::Error;
pub use packets::{EncodedLine, Trace, encode};
