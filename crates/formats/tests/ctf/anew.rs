//! Traces written anew, and read again.

use hodo_formats::ctf::write::{NotWritten, StreamWriter, Target, Version};
use hodo_formats::events::{Cursor, Item, Trace};

use crate::show::{read, trace};

/// A trace written anew, of which `keep` says which events stay, by their number; its metadata and its files.
pub(crate) fn written(
    trace: &Trace<'_>,
    version: Version,
    keep: fn(usize) -> bool,
) -> (Target, Vec<(String, Vec<u8>)>) {
    let target = Target::new(&trace.class, version, &|_, _| true).unwrap_or_else(|error| panic!("{error}"));
    let mut files = Vec::new();
    for stream in &trace.streams {
        let mut writer = StreamWriter::new(&target, trace, stream);
        let mut number = 0;
        for index in 0..stream.packets.len() {
            writer.begin(&stream.packets[index]);
            let mut cursor = Cursor::new(trace, stream, index..index + 1);
            while let Some((_, item)) = cursor.next_item() {
                match item {
                    Item::Lost(lost) => writer.lost(&lost).unwrap(),
                    Item::Event(parts) if keep(number) => match writer.event(&cursor.event(parts), true) {
                        Ok(()) | Err(NotWritten::Unreadable(_)) => {}
                        Err(error) => panic!("{error:?}"),
                    },
                    Item::Event(_) => {}
                }
                number += usize::from(matches!(item, Item::Event(_)));
            }
            writer.end(true, (true, true)).unwrap();
        }
        files.push((format!("stream{}", files.len()), writer.take()));
    }
    (target, files)
}

/// What is read of what was written.
pub(crate) fn read_back(target: &Target, files: &[(String, Vec<u8>)]) -> Vec<String> {
    let files: Vec<(&str, Vec<u8>)> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    read(&trace(&target.metadata, &files))
}
