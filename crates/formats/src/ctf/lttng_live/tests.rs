//! Tests of encoded requests and replies.

use super::*;

#[test]
fn requests_have_a_length_a_command_and_their_arguments() {
    assert_eq!(Request::ListSessions.encode(), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    let packet = Request::Packet { stream: 1, offset: 2, length: 3 }.encode();
    assert_eq!(packet[..16], [0, 0, 0, 0, 0, 0, 0, 20, 0, 0, 0, 5, 0, 0, 0, 0]);
    assert_eq!(packet[16..], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3]);
    assert_eq!(Request::Attach { session: 7 }.encode().len(), 16 + 20);
    assert_eq!(Request::Connect.encode().len(), 16 + 20);
}

/// An index reply with these words, status and flags.
fn index(words: [u64; 7], status: u32, flags: u32) -> Result<Index, ProtocolError> {
    let words = words.iter().flat_map(|word| word.to_be_bytes());
    let bytes: Vec<u8> = words.chain([status, flags].iter().flat_map(|word| word.to_be_bytes())).collect();
    Index::decode(&bytes)
}

#[test]
fn indices_packets_and_sessions_are_read() {
    let packet = index([8, 4096 * 8, 80, 5, 6, 0, 1], 1, 3).unwrap();
    assert_eq!((packet.status, packet.offset, packet.length), (IndexStatus::Packet, 8, 4096));
    assert!(packet.new_metadata && packet.new_streams);
    assert_eq!(
        index([0, 0, 0, 0, 9, 0, 1], 5, 0).map(|index| (index.status, index.end)),
        Ok((IndexStatus::Inactive, 9))
    );
    let packet = |status: u8, flags| {
        PacketHead::decode(&[0, 0, 0, status, 0, 0, 0, 9, 0, 0, 0, flags]).map(|head| head.status)
    };
    assert_eq!(packet(1, 0), Ok(PacketStatus::Bytes(9)));
    assert_eq!((packet(3, 2), packet(3, 0)), (Ok(PacketStatus::Later), Ok(PacketStatus::Absent)));
    let mut session = vec![0; Session::SIZE];
    session[7] = 3;
    session[20..24].copy_from_slice(b"host");
    session[84..88].copy_from_slice(b"name");
    let session = Session::decode(&session).unwrap();
    assert_eq!((session.id, &*session.host, &*session.name), (3, "host", "name"));
}

#[test]
fn replies_with_impossible_values_are_refused() {
    let reason = |result: Result<Index, ProtocolError>| result.unwrap_err().0;
    assert!(reason(index([0, (1 << 32) * 8, 0, 0, 0, 0, 0], 1, 0)).contains("a packet of 4294967296 bytes"));
    assert!(reason(index([0, u64::MAX, 0, 0, 0, 0, 0], 1, 0)).contains("whole bytes"));
    assert!(reason(index([0; 7], 1, 0)).contains("a packet of 0 bits"));
    assert!(reason(index([0; 7], 77, 0)).contains("status 77"));
    assert!(SessionCount::decode(&[0xff; 4]).unwrap_err().0.contains("4294967295 sessions"));
    assert!(Attached::decode(&[0, 0, 0, 1, 0xff, 0, 0, 0]).unwrap_err().0.contains("streams"));
    assert!(
        MetadataHead::decode(&[0x7f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]).unwrap_err().0.contains("metadata of")
    );
    assert!(PacketHead::decode(&[0, 0, 0, 1, 0xff, 0, 0, 0, 0, 0, 0, 0]).unwrap_err().0.contains("bytes"));
    assert!(Connected::decode(&[0; 20]).unwrap_err().0.contains("version 0.0"));
    assert!(Connected::decode(&[0; 3]).unwrap_err().0.contains("too short"));
}
