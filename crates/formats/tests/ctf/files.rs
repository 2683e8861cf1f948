//! Files other than streams: facts 28 and 29 (see `main.rs`).

use hodo_formats::ctf::read_metadata;
use hodo_formats::events::{DataFile, Trace};

use crate::{
    packets::{metadata, packet},
    show::read,
};

/// An index of packets: bytes, content in bits, begin, end, discarded events.
fn index(packets: &[[u64; 5]]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [0xC1F1_DCC1_u32, 1, 1, 72].iter().flat_map(|word| word.to_be_bytes()).collect();
    let mut offset = 0;
    for &[size, content, begin, end, discarded] in packets {
        let entry = [offset, size * 8, content, begin, end, discarded, 3, 0, 0];
        bytes.extend(entry.iter().flat_map(|word: &u64| word.to_be_bytes()));
        offset += size;
    }
    bytes
}

/// Reads a file with an index. Returns its lines and the notes.
fn by_index(bytes: &[u8], index: &[u8]) -> (Vec<String>, Vec<String>) {
    let class = read_metadata(metadata().as_bytes()).unwrap();
    let file = DataFile { name: "s".to_owned(), bytes, index: Some(index) };
    let trace = Trace::new("trace".to_owned(), class, vec![file]);
    (read(&trace), trace.notes.iter().map(|(file, note)| format!("{file}: {note}")).collect())
}

/// Two packets, and the entries of their index.
fn two_packets() -> (Vec<u8>, [[u64; 5]; 2]) {
    let bytes = [packet(0, 0, (1, 2), 0, &[1]), packet(0, 1, (3, 5), 0, &[3, 4])].concat();
    (bytes, [[40, 312, 1, 2, 0], [41, 320, 3, 5, 0]])
}

#[test]
fn fact_28_a_sound_index_finds_packets_after_a_damaged_one() {
    let (mut bytes, entries) = two_packets();
    assert_eq!(
        by_index(&bytes, &index(&entries)),
        (vec!["1 e".into(), "3 e".into(), "4 e".into()], Vec::new())
    );
    bytes[0] = 0;
    let (read, notes) = by_index(&bytes, &index(&entries));
    assert_eq!(read, ["3 e", "4 e", "! a packet begins with c1fc1fc1, and this with c1fc1f00"]);
    assert!(notes.is_empty());
}

#[test]
fn fact_28_an_index_that_is_wrong_is_reported_and_not_used() {
    let (bytes, entries) = two_packets();
    let with = |entry: usize, word: usize, value: u64| {
        let mut entries = entries;
        entries[entry][word] = value;
        index(&entries)
    };
    let sound = index(&entries);
    for (index, reason) in [
        (Vec::new(), "cut short in its header"),
        (vec![0; 16], "begins with 00000000"),
        (sound[..sound.len() - 1].to_vec(), "not a whole number of entries of 72 bytes"),
        (sound[..88].to_vec(), "describes 40 bytes, but the file has 81"),
        // A crashed machine leaves zeros.
        ([&sound[..88], &[0; 72]].concat(), "entry 1 is not that of a packet at byte 40"),
        // The entry is outside the file.
        (with(1, 0, 1 << 40), "entry 1 is not that of a packet"),
        (with(1, 0, u64::MAX / 8), "entry 1 is not that of a packet"),
        (with(0, 3, 0), "entry 0 is not that of a packet"),
        (with(1, 2, 4), "entry 1 contradicts the packet at byte 40"),
        (with(1, 4, 7), "entry 1 contradicts the packet at byte 40"),
    ] {
        let (read, notes) = by_index(&bytes, &index);
        assert_eq!(read, ["1 e", "3 e", "4 e"], "{reason}");
        assert!(notes.len() == 1 && notes[0].contains(reason), "{reason}: {notes:?}");
    }
}

#[test]
fn fact_29_a_file_that_is_no_stream_is_reported_and_left_out() {
    let class = read_metadata(metadata().as_bytes()).unwrap();
    let (bytes, _) = two_packets();
    let file = |name: &str, bytes| DataFile { name: name.to_owned(), bytes, index: None };
    let trace =
        Trace::new("trace".to_owned(), class, vec![file("README", b"what this is"), file("s", &bytes)]);
    assert_eq!(read(&trace), ["1 e", "3 e", "4 e"]);
    assert_eq!(trace.notes[0].0, "README");
    assert!(trace.notes[0].1.contains("not a stream"));
}
