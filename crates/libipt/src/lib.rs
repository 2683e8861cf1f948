//! The C interface of Intel's libipt, version 2.0.5: a shared library that programs use in place of `libipt.so.2`.
//!
//! ```text
//! intel-pt.h ──► c (pointers, panics) ──► packets: Kind, Content ◄── hodo-intel-pt
//!                                   ├──► query: branches and events on demand
//!                                   │      └─ time, event
//!                                   ├──► flow: instructions ─┐
//!                                   ├──► block: blocks ──────┴─ walk: state, instruction (iced-x86)
//!                                   └──► memory: images, sections, their cache
//! ```
//!
//! Hodoscope's own decoder pushes the flow of a whole segment to a sink, follows errata and damaged traces further than
//! libipt does, and reports other things at other places. Programs that link libipt depend on libipt's: they pull
//! instruction by instruction, and read statuses and error codes. So this crate decodes by demand, over the same packets.
//! Which differences are left is in the README.

#![warn(missing_debug_implementations)]

mod block;
mod c;
mod encode;
mod error;
mod event;
mod flow;
mod instruction;
mod length;
mod memory;
mod packet;
mod query;
mod settings;
mod synchronize;
mod time;
mod walk;

use c::abi;
use error::{Error, Status};
use settings::{Settings, errata_of};
