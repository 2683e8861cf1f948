//! Makes the trace.dat of a big-endian machine of one of a little-endian machine, version 6.

use std::collections::HashMap;

/// Kinds of records in a page (Linux, include/linux/ring_buffer.h); smaller numbers are the length in words.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

struct Swap {
    bytes: Vec<u8>,
    /// Position of the next number or text to swap.
    position: usize,
}

/// A field: offset, size, whether it is `__data_loc` or `__rel_loc`, and the size of its elements.
#[derive(Clone, Debug)]
struct Field {
    offset: usize,
    size: usize,
    located: bool,
    relative: bool,
    element: usize,
}

impl Swap {
    /// Swaps a number, and returns it.
    fn number(&mut self, size: usize) -> u64 {
        let bytes = &mut self.bytes[self.position..self.position + size];
        let number = bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte));
        bytes.reverse();
        self.position += size;
        number
    }

    fn text(&mut self) -> Vec<u8> {
        let length = self.bytes[self.position..].iter().position(|&byte| byte == 0).unwrap();
        let text = self.bytes[self.position..self.position + length].to_vec();
        self.position += length + 1;
        text
    }

    /// Skips a size of `size` bytes and as many bytes as it says, and returns those.
    fn sized(&mut self, size: usize) -> Vec<u8> {
        let length = self.number(size) as usize;
        self.position += length;
        self.bytes[self.position - length..self.position].to_vec()
    }

    fn record(&mut self, content: usize, end: usize, formats: &HashMap<u16, Vec<Field>>) {
        let id = u16::from_le_bytes([self.bytes[content], self.bytes[content + 1]]);
        for field in &formats[&id] {
            let start = content + field.offset;
            let (mut from, mut to) =
                (start, if field.size == 0 { end } else { (start + field.size).min(end) });
            if field.located {
                self.position = start;
                let location = self.number(4) as usize;
                from = location % (1 << 16) + if field.relative { start + 4 } else { content };
                to = from + (location >> 16);
            }
            self.position = from;
            while field.element > 1 && self.position + field.element <= to {
                self.number(field.element);
            }
        }
    }

    fn page(&mut self, start: usize, size: usize, formats: &HashMap<u16, Vec<Field>>) {
        self.position = start;
        self.number(8);
        let commit = self.number(8);
        let mut position = self.position;
        let end = position + (commit & ((1 << 27) - 1)) as usize;
        // The number of lost events follows the data.
        if commit >> 30 & 1 == 1 {
            self.position = end;
            self.number(8);
        }
        while position < end.min(start + size) {
            let word = u32::from_le_bytes(self.bytes[position..position + 4].try_into().unwrap());
            let (kind, delta) = (word & 31, word >> 5);
            self.bytes[position..position + 4].copy_from_slice(&(kind << 27 | delta).to_be_bytes());
            position += 4;
            if kind == PADDING && delta == 0 {
                break;
            }
            let mut length = kind as usize * 4;
            if matches!(kind, 0 | PADDING..) {
                self.position = position;
                let word = self.number(4) as usize;
                position += 4;
                length =
                    if matches!(kind, TIME_EXTEND | TIME_STAMP) { 0 } else { word.next_multiple_of(4) - 4 };
            }
            if kind < PADDING {
                self.record(position, position + length, formats);
            }
            position += length;
        }
    }
}

/// The id and the fields of a format file.
fn format(text: &[u8]) -> (u16, Vec<Field>) {
    let text = str::from_utf8(text).unwrap();
    let id = text.lines().find_map(|line| line.strip_prefix("ID: ")).unwrap().parse().unwrap();
    let fields = text.lines().filter_map(|line| {
        let parts: Vec<&str> = line.trim().strip_prefix("field:")?.split(';').map(str::trim).collect();
        let number = |part: usize| -> usize { parts[part].split_once(':').unwrap().1.parse().unwrap() };
        let (declaration, offset, size) = (parts[0], number(1), number(2));
        let located = declaration.starts_with("__data_loc") || declaration.starts_with("__rel_loc");
        let is_text = declaration.contains("char") && !declaration.contains('*');
        let element = match declaration {
            _ if is_text || declaration.contains("u8 ") || declaration.contains("struct") => 1,
            _ if declaration.contains("u16 ") => 2,
            _ if declaration.contains("u32") => 4,
            _ if declaration.contains("long") => 8,
            _ => [2, 4, 8].into_iter().find(|&element| element == size).unwrap_or(1),
        };
        Some(Field { offset, size, located, relative: declaration.starts_with("__rel"), element })
    });
    (id, fields.collect())
}

/// Returns the file as a big-endian machine would have written it.
pub(crate) fn big_endian(file: &[u8]) -> Vec<u8> {
    let mut swap = Swap { bytes: file.to_vec(), position: 12 };
    swap.bytes[12] = 1;
    swap.position = 14;
    let page_size = swap.number(4) as usize;
    let mut formats = HashMap::new();
    for _ in 0..2 {
        swap.text();
        swap.sized(8);
    }
    for _ in 0..swap.number(4) {
        formats.extend([format(&swap.sized(8))]);
    }
    for _ in 0..swap.number(4) {
        swap.text();
        for _ in 0..swap.number(4) {
            formats.extend([format(&swap.sized(8))]);
        }
    }
    for size in [4, 4, 8] {
        swap.sized(size);
    }
    let cpus = swap.number(4);
    assert_eq!(swap.text(), b"options  ");
    loop {
        let number = swap.number(2);
        if number == 0 {
            break;
        }
        let size = swap.number(4) as usize;
        let end = swap.position + size;
        // The number of CPUs, and the conversion from the TSC.
        let sizes: &[usize] = match number {
            8 => &[4],
            14 => &[4, 4, 8],
            _ => &[],
        };
        sizes.iter().for_each(|&size| _ = swap.number(size));
        swap.position = end;
    }
    assert_eq!(swap.text(), b"flyrecord");
    let mut pages = Vec::new();
    for _ in 0..cpus {
        let (offset, size) = (swap.number(8) as usize, swap.number(8) as usize);
        pages.extend((offset..offset + size).step_by(page_size));
    }
    swap.sized(8);
    pages.into_iter().for_each(|start| swap.page(start, page_size, &formats));
    swap.bytes
}
