//! Clocks and headers of events: facts 1 to 14 (see `main.rs`).

use hodo_formats::ctf::read_metadata;
use hodo_formats::events::{DataFile, Trace};

use crate::show::{lines, read, trace, tsdl};

/// Events of two bytes: a partial timestamp and a value.
fn partial(clock: &str) -> String {
    tsdl(&format!(
        "clock {{ name = c; {clock} }};
        stream {{ event.header := struct {{ integer {{ size = 8; map = clock.c.value; }} t; }}; }};
        event {{ name = e; fields := struct {{ u8 _x; }}; }};"
    ))
}

#[test]
fn fact_1_a_partial_time_wraps_once_where_it_is_smaller() {
    let read = lines(&partial("freq = 1000000000;"), &[250, 1, 5, 2, 5, 3, 4, 4]);
    assert_eq!(read, ["250 e x=1", "261 e x=2", "261 e x=3", "516 e x=4"]);
}

#[test]
fn fact_1_a_full_time_overwrites_the_clock_and_may_go_back() {
    let full = tsdl(
        "clock { name = c; };
        stream { event.header := struct { integer { size = 64; map = clock.c.value; } t; }; };
        event { name = e; };",
    );
    let bytes: Vec<u8> = [9u64, 3].iter().flat_map(|time| time.to_le_bytes()).collect();
    // The stream is read further although its time goes back.
    assert_eq!(lines(&full, &bytes), ["9 e", "3 e"]);
}

#[test]
fn fact_2_the_clock_survives_packets_that_do_not_say_when_they_begin() {
    let metadata = tsdl(
        "clock { name = c; };
        stream { packet.context := struct { u8 packet_size; };
            event.header := struct { integer { size = 8; map = clock.c.value; } t; }; };
        event { name = e; };",
    );
    let files = [("s", vec![16, 200, 16, 100, 16, 90])];
    let trace = trace(&metadata, &files);
    assert!(trace.streams[0].had_pre_pass);
    assert_eq!(read(&trace), ["200 e", "356 e", "602 e"]);
}

/// Packets of one byte with their times.
fn packets(tracer: &str) -> String {
    tsdl(&format!(
        "clock {{ name = c; }}; env {{ {tracer} }};
        typealias integer {{ size = 64; map = clock.c.value; }} := time;
        stream {{
            packet.context := struct {{ time timestamp_begin; time timestamp_end; u16 packet_size; }};
            event.header := struct {{ integer {{ size = 8; map = clock.c.value; }} t; }};
        }};
        event {{ name = e; }};"
    ))
}

fn packet(begin: u64, end: u64, events: &[u8]) -> Vec<u8> {
    let mut bytes: Vec<u8> = [begin, end].iter().flat_map(|time| time.to_le_bytes()).collect();
    bytes.extend(((18 + events.len() as u16) * 8).to_le_bytes());
    bytes.extend(events);
    bytes
}

#[test]
fn fact_3_the_end_of_a_packet_does_not_move_the_clock() {
    let metadata = packets("");
    let files = [("s", packet(0x100, 0x300, &[7]))];
    let trace = trace(&metadata, &files);
    assert!(!trace.streams[0].had_pre_pass);
    assert_eq!(trace.span().map(|(first, last)| (first.0, last.0)), Some((0x100, 0x300)));
    assert_eq!(read(&trace), ["263 e"]);
}

#[test]
fn fact_4_clocks_of_any_frequency_and_offset_are_exact() {
    let read = lines(&partial("freq = 2100000000; offset_s = -1; offset = 7;"), &[14, 1]);
    assert_eq!(read, ["-999999990 e x=1"]);
    let far = lines(&partial("freq = 1; offset_s = 9223372036854775807;"), &[1, 1]);
    assert_eq!(far, ["9223372036854775808000000000 e x=1"]);
}

#[test]
fn fact_5_clocks_of_one_name_may_differ_by_a_nanosecond() {
    let times =
        ["656418820", "656418821"].map(|offset| lines(&partial(&format!("offset = {offset};")), &[0, 1]));
    assert_eq!(times, [["656418820 e x=1"], ["656418821 e x=1"]]);
}

#[test]
fn fact_6_a_clock_need_not_count_from_1970() {
    let metadata = partial("absolute = FALSE;");
    let files = [("s", vec![0, 1])];
    let trace = trace(&metadata, &files);
    assert!(!trace.class.clocks[0].unix);
    assert_eq!(read(&trace), ["0 e x=1"]);
}

/// LTTng's header with an id of `id` bits, which is extended at `limit`, and a timestamp of `time` bits.
fn lttng(id: u32, limit: u32, time: u32, alignment: u32) -> String {
    tsdl(&format!(
        "clock {{ name = monotonic; }};
        stream {{ event.header := struct {{
            enum : integer {{ size = {id}; align = {alignment}; }} {{ compact = 0 ... {}, extended = {limit} }} id;
            variant <id> {{
                struct {{ integer {{ size = {time}; align = {alignment}; map = clock.monotonic.value; }} timestamp; }} compact;
                struct {{ u32 id; integer {{ size = 64; map = clock.monotonic.value; }} timestamp; }} extended;
            }} v;
        }} align(8); }};
        event {{ name = a; id = 2; }}; event {{ name = b; id = 70000; }};",
        limit - 1
    ))
}

#[test]
fn facts_8b_and_9_compact_and_large_headers_and_their_extended_arms() {
    let extended = |first: &[u8]| [first, &70_000u32.to_le_bytes(), &(1u64 << 40).to_le_bytes()].concat();
    // A 5-bit id and a 27-bit timestamp, packed.
    let compact = [(2u32 | 0x123 << 5).to_le_bytes().to_vec(), extended(&[31])].concat();
    assert_eq!(lines(&lttng(5, 31, 27, 1), &compact), ["291 a", "1099511627776 b"]);
    let large = [vec![2, 0], 0x123u32.to_le_bytes().to_vec(), extended(&[255, 255])].concat();
    assert_eq!(lines(&lttng(16, 65535, 32, 8), &large), ["291 a", "1099511627776 b"]);
    // A 27-bit timestamp wraps after 134 ms.
    let wrapping: Vec<u8> =
        [0x7ff_ffff_u32, 1].iter().flat_map(|time| (2 | time << 5).to_le_bytes()).collect();
    assert_eq!(lines(&lttng(5, 31, 27, 1), &wrapping), ["134217727 a", "134217729 a"]);
}

#[test]
fn fact_10_times_are_found_by_their_clock_and_labels_may_overlap() {
    let metadata = tsdl(
        "clock { name = c; };
        stream { event.header := struct { struct { integer { size = 8; map = clock.c.value; } whatever; } h; }; };
        event { name = e; fields := struct {
            enum : u8 { low = 0 ... 9, even = 4, even = 6, \"a b\" = 255 } x;
        }; };",
    );
    assert_eq!(lines(&metadata, &[1, 4, 2, 5, 3, 77]), ["1 e x=4:low|even", "2 e x=5:low", "3 e x=77"]);
}

#[test]
fn fact_13_ids_that_are_not_there_are_zero() {
    assert_eq!(lines(&tsdl("event { name = only; fields := struct { u8 x; }; };"), &[7]), ["- only x=7"]);
    let two = tsdl("stream { id = 1; }; stream { id = 2; }; event { name = e; };");
    assert!(crate::show::refused(&two).contains("no stream has the id 0"));
}

/// Events as Zephyr writes them: no packets, no clock, a 32-bit timestamp and an id.
const ZEPHYR: &str = "stream { event.header := struct { u32 timestamp; u8 id; }; };
    event { name = thread_switched_in; id = 0x10; fields := struct { u32 thread_id; }; };
    event { name = isr_enter; id = 0x1b; };";

fn zephyr() -> Vec<u8> {
    let event = |time: u32, id: u8, fields: &[u8]| [&time.to_le_bytes()[..], &[id], fields].concat();
    [event(100, 0x10, &[7, 0, 0, 0]), event(250, 0x1b, &[]), event(50, 0x1b, &[])].concat()
}

#[test]
fn fact_5b_times_without_a_clock_are_nanoseconds() {
    let expected = ["100 thread_switched_in thread_id=7", "250 isr_enter", "4294967346 isr_enter"];
    let (metadata, files) = (tsdl(ZEPHYR), [("channel0_0", zephyr())]);
    let zephyr = trace(&metadata, &files);
    assert_eq!(read(&zephyr), expected);
    assert!(zephyr.notes[0].1.contains("no clock"), "{:?}", zephyr.notes);
    // Begin and end come from its events.
    assert_eq!(zephyr.span().map(|(first, last)| (first.0, last.0)), Some((100, 4_294_967_346)));
    // Metadata with a clock gets no implied one.
    let clock = format!("{metadata} clock {{ name = own; freq = 500000000; }};");
    let own = trace(&clock, &files);
    assert_eq!(read(&own)[0], "200 thread_switched_in thread_id=7");
    assert!(own.notes.is_empty());
    let mut class = own.class;
    assert!(!class.imply_frequency(1));
}

#[test]
fn fact_5b_the_beginning_and_end_of_packets_are_times_too() {
    let metadata = tsdl(
        "stream { packet.context := struct { u32 timestamp_begin; u32 timestamp_end; u8 packet_size; };
            event.header := struct { u8 id; }; };
        event { name = e; };",
    );
    let packet = |begin: u32, end: u32| [&begin.to_le_bytes()[..], &end.to_le_bytes(), &[80, 0]].concat();
    let files = [("s", [packet(7, 9), packet(20, 30)].concat())];
    let trace = trace(&metadata, &files);
    assert_eq!(read(&trace), ["7 e", "20 e"]);
    assert_eq!(trace.span().map(|(first, last)| (first.0, last.0)), Some((7, 30)));
}

#[test]
fn the_frequency_of_a_clock_that_is_implied_can_be_set() {
    let mut class = read_metadata(tsdl(ZEPHYR).as_bytes()).unwrap();
    assert!(!class.imply_frequency(0) && class.imply_frequency(2_000_000_000));
    let bytes = zephyr();
    let file = DataFile { name: "s".to_owned(), bytes: &bytes, index: None };
    let trace = Trace::new("t".to_owned(), class, vec![file]);
    assert_eq!(read(&trace)[..2], ["50 thread_switched_in thread_id=7", "125 isr_enter"]);
    assert!(trace.notes.is_empty());
}

#[test]
fn a_time_that_may_be_of_several_clocks_is_unknown_and_that_is_reported() {
    let metadata = tsdl(&format!("clock {{ name = a; }}; clock {{ name = b; }}; {ZEPHYR}"));
    let files = [("s", zephyr())];
    let trace = trace(&metadata, &files);
    assert_eq!(read(&trace)[1], "- isr_enter");
    assert!(trace.notes[0].1.contains("none of the 2 clocks"), "{:?}", trace.notes);
}

#[test]
fn wrong_ends_of_packets_by_old_tracers_are_corrected() {
    let old = "tracer_name = \"lttng-ust\"; tracer_major = 2; tracer_minor = 10; tracer_patchlevel = 1;";
    let files = [("s", [packet(0x100, 0x102, &[4]), packet(0x200, 0x208, &[9])].concat())];
    let trace_of = |tracer: &str| {
        let metadata = packets(tracer);
        let trace = trace(&metadata, &files);
        trace.streams[0].packets.iter().map(|packet| packet.end.unwrap().0).collect::<Vec<_>>()
    };
    assert_eq!(trace_of(old), [0x200, 0x209]);
    assert_eq!(trace_of(&old.replace("10", "11")), [0x102, 0x208]);
}

#[test]
fn a_packet_that_was_open_when_the_machine_crashed_ends_with_its_last_event() {
    let files = [("s", packet(0x100, 0, &[4, 8]))];
    let metadata = packets("tracer_name = \"lttng-modules\"; tracer_major = 2; tracer_minor = 13;");
    let trace = trace(&metadata, &files);
    assert_eq!(trace.streams[0].packets[0].end.map(|end| end.0), Some(0x108));
    let barectf = packets("tracer_name = \"barectf\"; tracer_major = 2; tracer_minor = 3; tracer_patch = 0;");
    let trace = crate::show::trace(&barectf, &files);
    assert_eq!(trace.streams[0].packets[0].begin.map(|begin| begin.0), Some(0x100));
}
