//! Reads the metadata file: detects the CTF version and extracts the text.

use std::{borrow::Cow, string::FromUtf8Error};

use hodo_bytes::Cursor;

use crate::error::{Error, ErrorKind};
use crate::events::schema::{ByteOrder, TraceClass};

/// Magic number of a metadata packet: CTF 1.8 section 7.1.
const PACKET_MAGIC: u32 = 0x75D1_1D57;
/// Size of a metadata packet's header in bytes, and offsets in it: sizes of the content and of the packet in bits, three
/// schemes (compression, encryption, checksum), and the version (major, minor).
const PACKET_HEADER: usize = 37;
const CONTENT_SIZE: usize = 24;
const PACKET_SIZE: usize = 28;
const SCHEMES: usize = 32;
const VERSION: usize = 35;
/// The first byte of a CTF 2 metadata fragment: RFC 7464.
const RECORD_SEPARATOR: u8 = 0x1e;
/// Metadata up to this size in bytes is read in negligible time.
const SHORT: usize = 1 << 16;
/// Bytes at the beginning in which [`recognise`] looks for words.
const START: usize = 1 << 12;
/// Keywords at the beginning of plain TSDL.
const TSDL_WORDS: &str = "trace env clock stream event callsite typealias typedef struct enum variant";

/// Whether the bytes can begin a metadata file.
pub fn recognise(bytes: &[u8]) -> bool {
    if packet_order(bytes).is_some() || bytes.first() == Some(&RECORD_SEPARATOR) {
        return true;
    }
    let start = &bytes[..bytes.len().min(START)];
    let text = start.trim_ascii_start();
    if text.starts_with(b"{") || text.starts_with(b"[") {
        // Drafts of CTF 2 have no preamble. They are refused, but as what they are.
        let has = |word: &[u8]| memchr::memmem::find(start, word).is_some();
        return has(b"\"preamble\"") || has(b"\"trace-class\"");
    }
    // LTTng 2.14 writes no signature, and any number of comments can come first.
    let code = after_comments(text);
    let word = code.split(|byte| !byte.is_ascii_alphanumeric()).next().unwrap_or_default();
    TSDL_WORDS.split(' ').any(|known| known.as_bytes() == word) && !code[word.len()..].starts_with(b"=")
}

/// Skips whitespace and comments.
fn after_comments(mut text: &[u8]) -> &[u8] {
    loop {
        text = text.trim_ascii_start();
        let end = match text {
            [b'/', b'*', ..] => memchr::memmem::find(text, b"*/").map(|position| position + "*/".len()),
            [b'/', b'/', ..] => memchr::memchr(b'\n', text),
            _ => return text,
        };
        text = &text[end.unwrap_or(text.len())..];
    }
}

/// Reads metadata of any version.
///
/// # Errors
/// Position and reason, if the metadata is not CTF 1.8 or 2, is cut short, or contradicts itself.
pub fn read(bytes: &[u8]) -> Result<TraceClass, Error> {
    if is_json(bytes) {
        return super::json::read(bytes);
    }
    let Text { text, native, note } = text(bytes)?;
    let mut trace = super::tsdl::read(&text, native)?;
    trace.notes.extend(note);
    Ok(trace)
}

/// Whether the metadata is that of CTF 2, or of a draft of it.
fn is_json(bytes: &[u8]) -> bool {
    matches!(bytes.trim_ascii_start().first(), Some(&RECORD_SEPARATOR | b'{' | b'['))
}

/// Reads the metadata without its event classes, which are most of it. The result arrives quickly and suffices to
/// look for packets, provided [`TraceClass::finds_packets_as`] holds once all metadata is read.
///
/// Returns `None` if that fails or would take as long as reading everything.
pub fn read_head(bytes: &[u8]) -> Option<TraceClass> {
    let is_short = |head: usize| head <= SHORT.max(bytes.len() / 2);
    if is_json(bytes) {
        let event = memchr::memmem::Finder::new("\"event-record-class\"");
        let fragments = bytes.split(|&byte| byte == RECORD_SEPARATOR);
        let others: Vec<_> = fragments.filter(|fragment| event.find(fragment).is_none()).collect();
        let head = others.join(&RECORD_SEPARATOR);
        return is_short(head.len()).then(|| super::json::read(&head).ok())?;
    }
    let Text { text, native, .. } = text(bytes).ok()?;
    let head = without_events(&text);
    is_short(head.len()).then(|| super::tsdl::read(&head, native).ok())?
}

/// Removes event blocks, as far as they are formatted as tracers write them.
fn without_events(text: &str) -> String {
    let (begin, end) = (memchr::memmem::Finder::new("\nevent {"), memchr::memmem::Finder::new("\n};"));
    let (mut others, mut rest) = (String::new(), text);
    while let Some(position) = begin.find(rest.as_bytes()) {
        others += &rest[..position];
        let block = &rest[position..];
        rest = end.find(block.as_bytes()).map_or("", |length| &block[length + "\n};".len()..]);
    }
    others + rest
}

/// The byte order of a metadata file in packets.
fn packet_order(bytes: &[u8]) -> Option<ByteOrder> {
    let magic = *bytes.first_chunk::<4>()?;
    match magic {
        _ if u32::from_le_bytes(magic) == PACKET_MAGIC => Some(ByteOrder::Little),
        _ if u32::from_be_bytes(magic) == PACKET_MAGIC => Some(ByteOrder::Big),
        _ => None,
    }
}

/// TSDL, extracted from a metadata file.
struct Text<'a> {
    text: Cow<'a, str>,
    /// The byte order of the file's packets, if it has packets.
    native: Option<ByteOrder>,
    /// What was not read, for people.
    note: Option<String>,
}

/// Extracts the TSDL text. Bytes after the last packet that begin no packet are ignored, as babeltrace2 does.
fn text(bytes: &[u8]) -> Result<Text<'_>, Error> {
    let Some(order) = packet_order(bytes) else {
        return Ok(Text { text: String::from_utf8_lossy(bytes), native: None, note: None });
    };
    let (mut text, mut note) = (Vec::new(), None);
    let mut rest = Cursor::new(bytes, 0);
    while !rest.is_empty() {
        // A packet may be cut short in its magic number: all packets begin like the first one.
        let left = rest.rest();
        if packet_order(left) != Some(order) && !bytes.starts_with(left) {
            let (count, offset) = (left.len(), rest.offset());
            note = Some(format!(
                "the last {count} bytes of the metadata, from byte {offset} on, are no packet and were not read"
            ));
            break;
        }
        text.extend_from_slice(packet(&mut rest, order)?);
    }
    let lossy = |error: FromUtf8Error| String::from_utf8_lossy(error.as_bytes()).into_owned();
    let text = String::from_utf8(text).unwrap_or_else(lossy).into();
    Ok(Text { text, native: Some(order), note })
}

/// The text of the next packet.
fn packet<'a>(rest: &mut Cursor<'a>, order: ByteOrder) -> Result<&'a [u8], Error> {
    let cut = |eof| Error::cut_short("CTF metadata packet", eof);
    let start = rest.offset();
    let header = rest.clone().take(PACKET_HEADER).map_err(cut)?;
    let number = |offset: usize| {
        let word = header[offset..].first_chunk::<4>().copied().unwrap_or_default();
        if order == ByteOrder::Little { u32::from_le_bytes(word) } else { u32::from_be_bytes(word) }
    };
    let (content, whole) = (number(CONTENT_SIZE), number(PACKET_SIZE));
    let is_sound =
        content % 8 == 0 && whole % 8 == 0 && content >= PACKET_HEADER as u32 * 8 && content <= whole;
    if !is_sound {
        let what = "the size of a metadata packet's content in bits";
        let expected = "whole bytes, and no more than the packet has";
        return Err(Error::invalid(start + CONTENT_SIZE as u64, what, content.into(), expected));
    }
    if header[SCHEMES..VERSION].iter().any(|&scheme| scheme != 0) {
        let (what, help) =
            ("compressed, encrypted or checked CTF metadata", "no tracer is known to write it");
        return Err(Error { at: start + SCHEMES as u64, kind: ErrorKind::Unsupported { what, help } });
    }
    let (major, minor) = (header[VERSION], header[VERSION + 1]);
    if (major, minor) != (1, 8) {
        let version = u64::from(major) << 8 | u64::from(minor);
        let offset = start + VERSION as u64;
        return Err(Error::invalid(offset, "the version of CTF metadata", version, "1.8 (0x108)"));
    }
    let packet = rest.take(whole as usize / 8).map_err(cut)?;
    Ok(&packet[PACKET_HEADER..content as usize / 8])
}
