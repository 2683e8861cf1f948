//! Packets and streams: facts 21 to 27 and 32 (see `main.rs`).

use hodo_formats::events::Trace;

use crate::show::{lines, read, trace, tsdl};

/// Metadata of packets with all fields of LTTng's.
pub(crate) fn metadata() -> String {
    tsdl(
        "clock { name = c; };
        typealias integer { size = 64; map = clock.c.value; } := time;
        trace { packet.header := struct { u32 magic; u32 stream_id; u32 stream_instance_id; }; };
        stream { id = 3;
            packet.context := struct {
                time timestamp_begin; time timestamp_end; u16 content_size; u16 packet_size;
                u16 packet_seq_num; u16 events_discarded; u16 _cpu_id;
            };
            event.header := struct { integer { size = 8; map = clock.c.value; } t; };
        };
        event { stream_id = 3; name = e; };",
    )
}

/// A packet with stream id, sequence number, times and discarded counter, padded by a byte.
pub(crate) fn packet(stream: u32, number: u16, times: (u64, u64), discarded: u16, events: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        [0xC1FC_1FC1, 3, stream].iter().flat_map(|word: &u32| word.to_le_bytes()).collect();
    bytes.extend([times.0, times.1].iter().flat_map(|time| time.to_le_bytes()));
    let content = (12 + 16 + 10 + events.len() as u16) * 8;
    bytes.extend([content, content + 8, number, discarded, 0].iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend(events);
    bytes.push(0xee);
    bytes
}

fn read_files(files: &[(&str, Vec<u8>)]) -> Vec<String> {
    read(&trace(&metadata(), files))
}

fn streams(trace: &Trace<'_>) -> Vec<(Option<u64>, usize)> {
    trace.streams.iter().map(|stream| (stream.id, stream.packets.len())).collect()
}

#[test]
fn facts_21_and_22_padding_is_no_content_and_packets_may_be_empty() {
    let whole =
        [packet(0, 0, (1, 2), 0, &[2]), packet(0, 1, (3, 3), 0, &[]), packet(0, 2, (4, 5), 0, &[5])].concat();
    assert_eq!(read_files(&[("s", whole.clone())]), ["2 e", "5 e"]);
    // The last packet may be shorter than its declared size, if its content is complete.
    assert_eq!(read_files(&[("s", whole[..whole.len() - 1].to_vec())]), ["2 e", "5 e"]);
    let cut = read_files(&[("s", whole[..whole.len() - 2].to_vec())]);
    assert_eq!(cut[0], "2 e");
    assert!(cut[1].contains("of them are in the file"), "{cut:?}");
    // Without sizes, the file is one packet.
    assert_eq!(
        lines(&tsdl("event { name = e; fields := struct { u8 x; }; };"), &[1, 2]),
        ["- e x=1", "- e x=2"]
    );
}

#[test]
fn packets_of_impossible_sizes_are_reported() {
    let sizes = tsdl(
        "stream { packet.context := struct { u64 packet_size; u64 content_size; }; }; event { name = e; fields := struct { u8 x; }; };",
    );
    let packet = |size: u64, content: u64| {
        [size.to_le_bytes().to_vec(), content.to_le_bytes().to_vec(), vec![7]].concat()
    };
    assert!(lines(&sizes, &packet(0, 0))[0].contains("a packet of 0 bits"));
    assert!(lines(&sizes, &packet(136, 8))[0].contains("at least the 128"));
    assert!(lines(&sizes, &packet(130, 130))[0].contains("whole bytes"));
    let huge = lines(&sizes, &packet(8 << 40, 8 << 40));
    assert_eq!(huge[0], "- e x=7");
    assert!(huge[1].contains("the packet has 1099511627776 bytes"), "{huge:?}");
}

#[test]
fn fact_23_discarded_events_belong_to_the_gap_before() {
    let packet = |number, begin, discarded| packet(0, number, (begin, begin + 5), discarded, &[begin as u8]);
    let counted = [packet(0, 10, 0), packet(1, 20, 7), packet(2, 30, 7), packet(3, 40, 9)].concat();
    assert_eq!(read_files(&[("s", counted)]), ["10 e", "15 lost 7", "20 e", "30 e", "35 lost 2", "40 e"]);
    // The counter wraps.
    let wrapped = [packet(0, 10, 0), packet(1, 20, 30_000), packet(2, 30, 60_000), packet(3, 40, 4)].concat();
    assert_eq!(read_files(&[("s", wrapped)])[5..], ["35 lost 5540", "40 e"]);
    // LTTng's 32-bit counters may go back and forth without a loss.
    let back =
        [packet(0, 10, 0), packet(1, 20, 1280), packet(2, 30, 0), packet(3, 40, 1280), packet(4, 50, 1281)];
    let back = back.concat();
    let wide = metadata().replace("u16 events_discarded; u16 _cpu_id;", "u32 events_discarded;");
    let read = read(&trace(&wide, &[("s", back)]));
    assert_eq!(read, ["10 e", "15 lost 1280", "20 e", "30 e", "40 e", "45 lost 1", "50 e"]);
}

#[test]
fn facts_23_and_24_small_counters_wrap_and_do_not_go_back() {
    let metadata = tsdl(
        "stream { packet.context := struct { u8 packet_size; u8 packet_seq_num; u8 events_discarded; };
            event.header := struct { u8 id; }; };
        event { name = e; };",
    );
    let read = |counters: [(u8, u8); 3]| {
        let packets = counters.map(|(number, discarded)| [32, number, discarded, 0]);
        lines(&metadata, &packets.concat())
    };
    // More than half of the range at a time.
    assert_eq!(read([(0, 0), (1, 200), (2, 144)]), ["- e", "- lost 200", "- e", "- lost 200", "- e"]);
    assert_eq!(
        read([(9, 0), (209, 0), (211, 0)]),
        ["- e", "- lost 199 packets", "- e", "- lost 1 packets", "- e"]
    );
    assert_eq!(read([(254, 3), (255, 3), (0, 3)]), ["- lost 3", "- e", "- e", "- e"]);
}

#[test]
fn fact_21_a_packet_without_a_size_is_as_long_as_its_content() {
    let of_content = |context: &str| {
        tsdl(&format!(
            "stream {{ packet.context := struct {{ {context} }}; event.header := struct {{ u8 id; }}; }};
            event {{ name = e; fields := struct {{ u8 x; }}; }};"
        ))
    };
    let bytes = [&[40u8, 0, 1, 0, 2][..], &[24, 0, 3], &[24, 0, 4]].concat();
    assert_eq!(lines(&of_content("u8 content_size;"), &bytes), ["- e x=1", "- e x=2", "- e x=3", "- e x=4"]);
    // The last bits of the last byte are not content.
    let padded = of_content("u8 content_size;").replace("u8 x", "integer { size = 4; } x");
    assert_eq!(lines(&padded, &[20, 0, 1, 20, 0, 2]), ["- e x=1", "- e x=2"]);
    let sized = of_content("u8 content_size; u8 packet_size;");
    assert_eq!(lines(&sized, &[32, 40, 0, 1, 9, 32, 32, 0, 2]), ["- e x=1", "- e x=2"]);
    let cut = lines(&of_content("u8 content_size;"), &[24, 0, 1, 40, 0, 2]);
    assert_eq!(cut, ["- e x=1", "- e x=2", "! the packet has 5 bytes, but only 3 of them are in the file"]);
    assert!(lines(&of_content("u8 content_size;"), &[0])[0].contains("a packet of 0 bits"));
}

#[test]
fn arrays_of_empty_elements_are_read_up_to_a_limit() {
    let metadata =
        tsdl("event { name = e; fields := struct { u16 n; struct { } x[n]; struct { } y[100]; u8 z; }; };");
    let read = lines(&metadata, &[[44, 1].as_slice(), &[7]].concat());
    assert_eq!(read[0].matches("{ }").count(), 400);
    assert!(read[0].ends_with("z=7"), "{read:?}");
}

#[test]
fn events_discarded_by_the_first_packet_are_lost_at_its_begin() {
    // The loss can be anywhere in the packet, as nothing is known about the time before.
    let packet = |number, begin, discarded| {
        packet(0, number, (begin, begin + 5), discarded, &[begin as u8, begin as u8 + 2])
    };
    assert_eq!(
        read_files(&[("s", [packet(0, 10, 4), packet(1, 20, 4)].concat())]),
        ["10 lost 4", "10 e", "12 e", "20 e", "22 e"]
    );
    // A packet with only an end time begins at its first event.
    let endless = tsdl(
        "clock { name = c; };
        typealias integer { size = 8; map = clock.c.value; } := time;
        stream { packet.context := struct { u8 events_discarded; time timestamp_end; u8 content_size; u8 packet_size; };
            event.header := struct { time t; }; };
        event { name = e; };",
    );
    assert_eq!(
        lines(&endless, &[3, 30, 48, 48, 10, 20, 3, 40, 40, 40, 35]),
        ["10 lost 3", "10 e", "20 e", "35 e"]
    );
}

#[test]
fn fact_24_numbers_that_are_missing_are_lost_packets() {
    let bytes = [packet(0, 5, (1, 2), 0, &[1]), packet(0, 9, (3, 4), 0, &[3])].concat();
    assert_eq!(read_files(&[("s", bytes)]), ["1 e", "2 lost 3 packets", "3 e"]);
}

#[test]
fn fact_25_a_stream_may_lie_in_several_files_whatever_they_are_called() {
    let files = [
        ("ch_0_0", packet(7, 2, (30, 31), 0, &[30])),
        ("ch_0_1", [packet(7, 0, (10, 11), 0, &[10]), packet(8, 0, (1, 2), 0, &[1])].concat()),
        ("ch_0_2", packet(7, 1, (20, 21), 0, &[20])),
    ];
    let metadata = metadata();
    let trace = trace(&metadata, &files);
    assert_eq!(streams(&trace), [(Some(7), 3), (Some(8), 1)]);
    assert_eq!(read(&trace), ["10 e", "20 e", "30 e", "1 e"]);
    // Without an id, each file is a stream.
    let nameless = tsdl("event { name = e; fields := struct { u8 x; }; };");
    assert_eq!(
        streams(&crate::show::trace(&nameless, &[("a", vec![1]), ("b", vec![2])])),
        [(None, 1), (None, 1)]
    );
}

#[test]
fn fact_26_packets_that_are_in_two_snapshots_are_read_once() {
    let (one, two, three) =
        (packet(0, 0, (1, 2), 0, &[1]), packet(0, 1, (3, 4), 0, &[3]), packet(0, 2, (5, 6), 0, &[5]));
    let files = [("s1/s", [one, two.clone()].concat()), ("s2/s", [two, three].concat())];
    assert_eq!(read_files(&files), ["1 e", "3 e", "5 e"]);
}

#[test]
fn fact_27_a_stream_that_the_metadata_does_not_know_leaves_the_others() {
    let mut unknown = packet(0, 0, (1, 2), 0, &[1]);
    unknown[4] = 9;
    let read = read_files(&[("bad", unknown), ("good", packet(1, 0, (1, 2), 0, &[1]))]);
    assert_eq!(read, ["1 e", "! the metadata has no stream class 9"]);
}

#[test]
fn fact_32_packets_carry_a_mark_and_the_uuid_of_their_trace() {
    let mut wrong = [packet(0, 0, (1, 2), 0, &[1]), packet(0, 1, (3, 4), 0, &[3])].concat();
    wrong[0] = 0;
    assert_eq!(read_files(&[("s", wrong)]), ["! a packet begins with c1fc1fc1, and this with c1fc1f00"]);
    let metadata = tsdl(
        "trace { uuid = \"00010203-0405-0607-0809-0a0b0c0d0e0f\"; packet.header := struct { u8 uuid[16]; }; };
        event { name = e; fields := struct { u8 x; }; };",
    );
    let mut bytes: Vec<u8> = (0..16).collect();
    bytes.push(5);
    assert_eq!(lines(&metadata, &bytes), ["- e x=5"]);
    bytes[0] = 9;
    // As babeltrace2 does: read, but not in silence.
    let files = [("s", bytes)];
    let trace = trace(&metadata, &files);
    assert_eq!(read(&trace), ["- e x=5"]);
    let expected = "packets of another trace were read all the same: 1, of the trace 09010203-0405-";
    assert!(trace.notes[0].1.starts_with(expected), "{:?}", trace.notes);
}

#[test]
fn an_event_that_the_metadata_does_not_know_ends_its_packet_only() {
    let metadata = tsdl(
        "stream { packet.context := struct { u8 packet_size; }; event.header := struct { u8 id; }; };
        event { id = 1; name = e; };",
    );
    let read = lines(&metadata, &[24, 1, 9, 24, 1, 1]);
    assert_eq!(
        read,
        ["- e", "- e", "- e", "! event at bit 16 of its packet: the metadata has no event class 9"]
    );
}

#[test]
fn a_sequence_of_2_to_the_63_is_refused_whatever_its_elements() {
    for element in ["u8 x[n]", "struct { } x[n]", "string x[n]", "struct { u8 m; u8 y[m]; } x[n]"] {
        let metadata = tsdl(&format!("event {{ name = e; fields := struct {{ u64 n; {element}; }}; }};"));
        let bytes = [&(1u64 << 63).to_le_bytes()[..], &[0; 64]].concat();
        let read = lines(&metadata, &bytes);
        assert!(read[0].contains("a length of 9223372036854775808"), "{element}: {read:?}");
    }
}
