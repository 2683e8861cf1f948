//! Helpers that rewrite traces and read them back.

use hodo_formats::ctf::write::{KeptTimes, NotWritten, StreamWriter, Target, Version};
use hodo_formats::events::{Cursor, Item, Trace};

use crate::show::{read, trace};

/// Rewrites a trace with the events that `keep` selects by number. Returns metadata and files.
pub(crate) fn written(
    trace: &Trace<'_>,
    version: Version,
    keep: fn(usize) -> bool,
) -> (Target, Vec<(String, Vec<u8>)>) {
    let target = Target::new(&trace.class, version, &|_, _| true).unwrap_or_else(|error| panic!("{error}"));
    let mut files = Vec::new();
    for stream in &trace.streams {
        let mut writer = StreamWriter::new(&target, trace, stream);
        let (keeps_begin, writes_empty) = (true, true);
        let mut number = 0;
        for index in 0..stream.packets.len() {
            writer.begin(&stream.packets[index]);
            let mut cursor = Cursor::new(trace, stream, index..index + 1);
            while let Some((_, item)) = cursor.next_item() {
                match item {
                    Item::Lost(lost) => writer.lost(&lost).unwrap(),
                    Item::Event(parts) if keep(number) => {
                        match writer.event(&cursor.event(parts), keeps_begin) {
                            Ok(()) | Err(NotWritten::Unreadable(_)) => {}
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                    Item::Event(_) => {}
                }
                number += usize::from(matches!(item, Item::Event(_)));
            }
            writer.end(writes_empty, KeptTimes { begin: keeps_begin, end: true }).unwrap();
        }
        files.push((format!("stream{}", files.len()), writer.take()));
    }
    (target, files)
}

/// Reads back a rewritten trace.
pub(crate) fn read_back(target: &Target, files: &[(String, Vec<u8>)]) -> Vec<String> {
    let files: Vec<(&str, Vec<u8>)> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    read(&trace(&target.metadata, &files))
}
