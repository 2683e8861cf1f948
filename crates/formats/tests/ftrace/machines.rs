//! Files of other machines, versions and compressions hold the same events.

use std::{io::Write, process::Command};

use flate2::{Compression, write::ZlibEncoder};
use hodo_formats::ftrace::write::{Head, TscToNanos};

use crate::{
    each_kind,
    file::{PAGE, file_of, head, page, record},
    lines, refused,
    swap::big_endian,
};

#[test]
fn big_endian_files_hold_the_same_as_little_endian_ones() {
    let little = each_kind();
    let big = big_endian(&little);
    assert_eq!((big[12], big[14..18].to_vec()), (1, vec![0, 0, 1, 0]));
    assert_eq!(lines(&big), lines(&little));
    let half = TscToNanos { multiplier: 1, shift: 1, offset: 1000u64.wrapping_neg() };
    let tsc = Head { clock: b"local [x86-tsc]".into(), tsc: Some(half), ..head() };
    let little = file_of(&tsc, &[vec![page(4000, &[record(20, 10, &[0; 32])], 1 << 31, &[])]]);
    assert_eq!(lines(&big_endian(&little)), lines(&little));
}

/// A file of the kernel, and trace-cmd as the judge of the file made of it.
#[test]
fn trace_cmd_reads_the_same_of_a_big_endian_file() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/ftrace/small-6.dat");
    let little = std::fs::read(fixture).unwrap();
    let big = big_endian(&little);
    assert_eq!(lines(&big), lines(&little));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.dat");
    std::fs::write(&path, big).unwrap();
    let report = |path: &std::path::Path| {
        let output = Command::new("trace-cmd").args(["report"]).arg(path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (little, big) = (report(fixture.as_ref()), report(&path));
    assert!(little.len() > 1000, "{}", little.len());
    assert_eq!(little, big);
}

#[test]
fn versions_before_6_are_read_as_version_6() {
    let six = each_kind();
    for version in [&b"5"[..], b"1"] {
        let mut old = six.clone();
        old[10..11].copy_from_slice(version);
        assert_eq!(lines(&old), lines(&six));
    }
    // Without options: the clock and its name are not in such files.
    let position_of = |text: &[u8]| six.windows(text.len()).position(|window| window == text).unwrap();
    let (options, records) = (position_of(b"options  \0"), position_of(b"flyrecord\0"));
    let mut old = [&six[..options], &six[records..]].concat();
    old[10] = b'3';
    let moved = (records - options) as u64;
    let position = options + 10;
    let offset = u64::from_le_bytes(old[position..position + 8].try_into().unwrap()) - moved;
    old[position..position + 8].copy_from_slice(&offset.to_le_bytes());
    assert_eq!(lines(&old), lines(&six));
    for version in [b'8', b'x'] {
        old[10] = version;
        assert!(refused(&old).contains("versions up to 7"), "{}", refused(&old));
    }
    let bare = file_of(&Head { header_page: Vec::new(), ..head() }, &[vec![page(10, &[], 0, &[])]]);
    assert!(refused(&bare).contains("before 2.6.31"), "{}", refused(&bare));
}

/// A file of version 7 with a section for each part, packed by `pack` with the name.
fn version_7(name: &str, pack: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let chunk = |bytes: &[u8]| {
        let packed = pack(bytes);
        [&(packed.len() as u32).to_le_bytes()[..], &(bytes.len() as u32).to_le_bytes(), &packed].concat()
    };
    let six = each_kind();
    let head = head();
    let sized = |text: &[u8]| [&(text.len() as u64).to_le_bytes()[..], text].concat();
    let short = |text: &[u8]| [&(text.len() as u32).to_le_bytes()[..], text].concat();
    let formats = |texts: &[Vec<u8>]| {
        let texts: Vec<u8> = texts.iter().flat_map(|text| sized(text)).collect();
        texts
    };
    let count = |texts: &[Vec<u8>]| (texts.len() as u32).to_le_bytes();
    let (system, own) = &head.systems[0];
    let sections = [
        (
            16u16,
            [b"header_page\0", &sized(&head.header_page)[..], b"header_event\0", &sized(&head.header_event)]
                .concat(),
        ),
        (17, [&count(&head.own_formats)[..], &formats(&head.own_formats)].concat()),
        (18, [&1u32.to_le_bytes()[..], system.as_bytes(), b"\0", &count(own), &formats(own)].concat()),
        (19, short(&head.symbols)),
        (20, short(&head.texts)),
        (21, sized(&head.threads)),
    ];
    let mut file =
        [b"\x17\x08\x44tracing7\0\0\x08", &(PAGE as u32).to_le_bytes()[..], name.as_bytes(), b"\x001\0"]
            .concat();
    let position = file.len();
    file.extend([0; 8]);
    let mut options = Vec::new();
    let mut option = |number: u16, value: &[u8]| {
        options.extend([&number.to_le_bytes()[..], &short(value)].concat());
    };
    for (number, content) in sections {
        let content = chunk(&content);
        option(number, &(file.len() as u64).to_le_bytes());
        file.extend([&number.to_le_bytes()[..], &1u16.to_le_bytes(), &[0; 4], &sized(&content)].concat());
    }
    let pages = &six[six.len() - 2 * PAGE..];
    let content = [&2u32.to_le_bytes()[..], &chunk(&pages[..PAGE]), &chunk(&pages[PAGE..])].concat();
    let section = file.len() as u64;
    file.extend(
        [&3u16.to_le_bytes()[..], &1u16.to_le_bytes(), &[0; 4], &(content.len() as u64).to_le_bytes()]
            .concat(),
    );
    let data = file.len() as u64;
    file.extend(&content);
    let size = content.len() as u64 - 4;
    let cpu =
        [&1u32.to_le_bytes()[..], &0u32.to_le_bytes(), &data.to_le_bytes(), &size.to_le_bytes()].concat();
    option(
        3,
        &[&section.to_le_bytes()[..], b"\0local [mono]\0", &(PAGE as u32).to_le_bytes(), &cpu].concat(),
    );
    option(0, &[0; 8]);
    let options_offset = file.len() as u64;
    file[position..position + 8].copy_from_slice(&options_offset.to_le_bytes());
    file.extend([&[0; 8][..], &sized(&options)].concat());
    file
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn zlib_is_unpacked() {
    let file = version_7("zlib", zlib);
    assert_eq!(lines(&file), lines(&each_kind()));
    let wrong =
        lines(&version_7("zlib", |bytes| if bytes.len() == PAGE { vec![1, 2, 3] } else { zlib(bytes) }));
    assert!(wrong.iter().all(|line| line.starts_with('!')), "{wrong:?}");
    // A stream that holds more than the file says is read as far as that.
    let longer = version_7("zlib", |bytes| zlib(&[bytes, &[7; 1 << 20]].concat()));
    assert_eq!(lines(&longer), lines(&each_kind()));
    let other = version_7("lz4", zlib);
    assert!(refused(&other).contains("neither by zstd nor by zlib"), "{}", refused(&other));
}
