//! CTF features that a correct reader must handle, on traces of a few bytes.

mod anew;
mod fields;
mod files;
mod json;
mod metadata;
mod packets;
mod show;
mod time;
mod write;
