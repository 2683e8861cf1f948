//! CTF features that a correct reader must handle, on traces of a few bytes. Such a feature is
//! a numbered fact; `docs/formats.md` names the tests of each.

mod anew;
mod fields;
mod files;
mod json;
mod metadata;
mod packets;
mod show;
mod time;
mod write;
