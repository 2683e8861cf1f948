//! Snapshots of OpenCSD and raw buffers of CoreSight: the small program of `arm.rs`.

use serde_json::Value;

use crate::run::{Folder, fixture, hodo, word};

/// The instructions that the emulator counted.
const INSTRUCTIONS: usize = 4385;
const LISTING: [&str; 4] = ["script", "--insns", "--fields", "ip,insn"];

#[test]
fn a_snapshot_shows_the_flow_of_all_its_processors() {
    let folder = fixture("arm/snapshot");
    let run = |command: &[&str]| hodo(&[command, &[&folder]].concat()).fine().stdout;
    let listing = run(&["script", "--insns", "--fields", "tid,ip,insn"]);
    assert_eq!(listing.lines().count(), 2 * INSTRUCTIONS);
    assert!(listing.starts_with("0 400078 mov x19, #0x14\n"), "{listing:.80}");
    let second = run(&["script", "--insns", "--fields", "tid,ip,insn", "--tid", "1"]);
    assert_eq!(second.lines().count(), INSTRUCTIONS);
    assert!(second.starts_with("1 400078 mov x19, #0x14\n"), "{second:.80}");
    // Its first file stands for all of it.
    let first = format!("{folder}/snapshot.ini");
    assert_eq!(hodo(&["script", "--insns", "--fields", "tid,ip,insn", &first]).fine().stdout, listing);
    // However the trace is cut.
    let cut = run(&["script", "--insns", "--fields", "tid,ip,insn", "--chunk-size", "1"]);
    assert_eq!(cut, listing);
    let table: Value =
        serde_json::from_str(&run(&["report", "functions", "--by", "thread", "--format", "json"])).unwrap();
    let column = |name: &str| {
        let columns = table["columns"].as_array().unwrap();
        columns.iter().position(|column| column["name"] == name).unwrap()
    };
    let sum = |thread: u64| -> u64 {
        let rows = table["rows"].as_array().unwrap().iter();
        let own = rows.filter(|row| row[column("tid")].as_u64() == Some(thread));
        own.map(|row| row[column("self_instructions")].as_u64().unwrap()).sum()
    };
    assert_eq!((sum(0), sum(1)), (INSTRUCTIONS as u64, INSTRUCTIONS as u64));
    let info = run(&["info"]);
    for line in ["snapshot of OpenCSD", "ETM_1 (ETMv4, ID 11)", "STM_0 (STM: not read)"] {
        assert!(info.contains(line), "{line} in {info}");
    }
}

#[test]
fn the_packets_of_a_snapshot_are_listed() {
    let packets = hodo(&["script", "--packets", &fixture("arm/snapshot")]).fine().stdout;
    let lines: Vec<&str> = packets.lines().collect();
    assert_eq!(lines[0], "# tid 0");
    assert!(lines[1].ends_with(" A-SYNC") && lines[2].contains(" TRACE INFO"), "{packets:.300}");
    assert!(
        packets.contains(" ADDRESS 400078 CONTEXT EL0 AArch64 non-secure virtual 3 ID 4d2\n"),
        "{packets:.600}"
    );
    assert!(!packets.contains("skipped"), "{packets}");
}

#[test]
fn a_raw_buffer_needs_the_registers_of_its_units() {
    let folder = Folder::new();
    let unit = std::fs::read_to_string(fixture("arm/snapshot/etm_0.ini")).unwrap();
    let alone = folder.write("alone.ini", format!("[buffer]\nformat=source_data\n{unit}").as_bytes());
    let [frames, source, framed, program] = [
        "arm/snapshot/frames.bin",
        "arm/snapshot/source.bin",
        "arm/snapshot/etm_0.ini",
        "arm/symfs/bin/tiny",
    ]
    .map(fixture);
    let mut listings = Vec::new();
    for (buffer, settings) in [(&frames, &framed), (&source, &alone)] {
        let input = ["--etm", buffer, "--etm-config", settings, "--elf", &program];
        let run = |command: &[&str]| hodo(&[command, &input].concat()).fine().stdout;
        let table: Value = serde_json::from_str(&run(&["report", "functions", "--format", "json"])).unwrap();
        let column = |name: &str| {
            let columns = table["columns"].as_array().unwrap();
            columns.iter().position(|column| column["name"] == name).unwrap()
        };
        let rows = table["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| word(&row[column("function")]) == "fib").unwrap();
        // fib(6) calls fib 24 times.
        assert_eq!(
            (row[column("self_instructions")].as_u64(), row[column("calls")].as_u64()),
            (Some(4140), Some(500))
        );
        let listing = run(&LISTING);
        assert_eq!(listing.lines().count(), INSTRUCTIONS);
        listings.push(listing);
    }
    assert_eq!(listings[0], listings[1]);
    // Without the settings nothing can be read; wrong ones are named.
    assert_ne!(hodo(&["info", "--etm", &frames]).code, 0);
    let wrong = folder.write("wrong.ini", unit.replace("TRCIDR2", "TRCX").as_bytes());
    let ran = hodo(&["info", "--etm", &frames, "--etm-config", &wrong]);
    assert!(
        ran.stderr.contains("wrong.ini") && ran.stderr.contains("register TRCIDR2 is missing"),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_snapshot_without_its_files_says_which() {
    let folder = Folder::new();
    for name in [
        "snapshot.ini",
        "trace.ini",
        "cpu_0.ini",
        "cpu_1.ini",
        "etm_0.ini",
        "etm_1.ini",
        "stm.ini",
        "source.bin",
    ] {
        folder.write(name, &std::fs::read(fixture(&format!("arm/snapshot/{name}"))).unwrap());
    }
    let place = folder.path().to_string_lossy().into_owned();
    let ran = hodo(&["script", "--insns", &place]);
    let shown = format!("{}{}", ran.stdout, ran.stderr);
    assert!(shown.contains("frames.bin is missing") && shown.contains("code.bin is missing"), "{shown}");
}
