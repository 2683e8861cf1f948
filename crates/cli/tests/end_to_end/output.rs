//! Output: files that are complete or absent, closed pipes, limits, formats.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Read},
    os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink},
    process::Stdio,
};

use rustix::fs::{Mode, mkfifoat};

use crate::{
    program, raw,
    run::{Folder, command, fixture, hodo, wait},
};

/// Returns arguments for a raw buffer with its code.
fn input(folder: &Folder, rounds: u32) -> Vec<String> {
    let buffer = folder.write("trace.pt", &raw::trace(0x1000, rounds));
    let code = folder.write("code.bin", &program::code(rounds));
    vec!["--pt".to_owned(), buffer, "--code".to_owned(), format!("{code}@0x1000")]
}

fn arguments(words: &[&str], input: &[String]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).chain(input.iter().cloned()).collect()
}

#[test]
fn a_file_is_whole_or_absent() {
    let folder = Folder::new();
    let input = input(&folder, 10);
    let out = folder.file("out.txt");
    let names = folder.names();
    assert!(hodo(&arguments(&["script", "--insns", "-o", &out], &input)).fine().stdout.is_empty());
    assert_eq!(fs::read_to_string(&out).unwrap(), program::lines(&program::addresses(0x1000, 10)));
    // The umask applies, as for any other new file.
    let mode = |path: &str| fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode(&out), mode(&folder.write("new", b"")));
    fs::remove_file(folder.file("new")).unwrap();
    fs::remove_file(&out).unwrap();

    let failed = hodo(&["report", "functions", "-o", &out, &folder.file("missing.data")]);
    assert_eq!(failed.code, 3);
    assert_eq!(folder.names(), names);
}

#[test]
fn an_interrupted_run_leaves_no_file() {
    let folder = Folder::new();
    // Enough instructions to take a while.
    let input = input(&folder, 3_000_000);
    let out = folder.file("out.txt");
    let child = command(&arguments(&["script", "--insns", "--chunk-size", "1K", "-o", &out], &input)).spawn();
    let child = child.unwrap();
    let has_begun = || {
        folder.names().iter().any(|name| {
            name.starts_with(".hodo-") && fs::metadata(folder.file(name)).is_ok_and(|file| file.len() > 0)
        })
    };
    while !has_begun() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .unwrap();
    assert_eq!(wait(child).expect("it ends").code, 130);
    assert_eq!(folder.names(), ["code.bin", "trace.pt"]);
}

#[test]
fn links_stay_and_pipes_are_written_in_place() {
    let folder = Folder::new();
    let input = input(&folder, 10);
    let expected = program::lines(&program::addresses(0x1000, 10));
    let real = folder.write("real.txt", b"old");
    let link = folder.file("link.txt");
    symlink(&real, &link).unwrap();
    hodo(&arguments(&["script", "--insns", "-o", &link], &input)).fine();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read_to_string(&real).unwrap(), expected);

    let pipe = folder.file("pipe");
    mkfifoat(rustix::fs::CWD, &pipe, Mode::RUSR | Mode::WUSR).unwrap();
    let child = command(&arguments(&["script", "--insns", "-o", &pipe], &input)).spawn().unwrap();
    let mut text = String::new();
    File::open(&pipe).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, expected);
    wait(child).expect("it ends").fine();
    assert!(fs::symlink_metadata(&pipe).unwrap().file_type().is_fifo());

    let device = fs::metadata("/dev/null").unwrap().ino();
    hodo(&arguments(&["script", "--insns", "-o", "/dev/null"], &input)).fine();
    assert_eq!(fs::metadata("/dev/null").unwrap().ino(), device);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = Folder::new();
    let input = input(&folder, 200_000);
    for words in [&["script", "--insns"][..], &["script", "--packets"], &["script", "--calls"]] {
        let mut child = command(&arguments(words, &input)).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        lines.next().unwrap().unwrap();
        drop(lines);
        let ran = wait(child).expect("it ends").fine();
        assert!(ran.stderr.is_empty(), "{words:?}: {ran:?}");
    }
    // Output so short that it meets the closed pipe only at the end.
    for words in [&["report", "functions"][..], &["info"], &["report", "--list"], &["completions", "bash"]] {
        let short = if words.contains(&"functions") || words == ["info"] { &input[..] } else { &[] };
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = command(&arguments(words, short)).stdout(Stdio::from(writer)).spawn().unwrap();
        let ran = wait(child).expect("it ends").fine();
        assert!(ran.stderr.is_empty(), "{words:?}: {ran:?}");
    }
}

/// A closed pipe, and a full device.
fn nowhere() -> [(&'static str, Stdio); 2] {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    [("closed", writer.into()), ("full", File::options().write(true).open("/dev/full").unwrap().into())]
}

/// The tables of a store are written at the same time, so the numbers of its names, and its size, vary by some bytes.
fn without_size(stdout: &str) -> &str {
    stdout.split_once(" records, ").map_or(stdout, |(records, _)| records)
}

/// What a command writes.
#[derive(PartialEq)]
enum Writes {
    Results,
    Messages,
    Both,
}

/// None of these commands panics, wherever its output leads.
#[test]
fn outputs_that_are_closed_or_full_end_a_command_as_they_end_cat() {
    let folder = Folder::new();
    let (kernel, user) = (&fixture("ctf/lttng2.13-kernel"), &fixture("ctf/ust2.16-ctf2"));
    let flow = &fixture("perf/tiny.data");
    let (store, exported) = (&folder.file("store"), &folder.file("exported"));
    let commands: &[(&[&str], Writes)] = &[
        (&["explain", kernel], Writes::Results),
        (&["explain", "--list"], Writes::Results),
        (&["latency", "--functions", flow], Writes::Both),
        (&["latency", "--syscall", "no_such_call", kernel], Writes::Both),
        (&["latency", "--pair", "list"], Writes::Results),
        (&["sync", kernel, user], Writes::Both),
        (&["report", "all", kernel], Writes::Results),
        (&["report", "functions", flow], Writes::Both),
        (&["info", flow], Writes::Results),
        (&["script", "--calls", flow], Writes::Both),
        (&["sql", kernel, "select nothing"], Writes::Messages),
        (&["plan", "cpu", kernel], Writes::Results),
        (&["index", "--store", store, kernel], Writes::Results),
        (&["export", "--to", "folded", "-o", exported, flow], Writes::Messages),
        (&["completions", "bash"], Writes::Results),
        (&["help", "--json"], Writes::Results),
        (&["--help"], Writes::Results),
        (&["nonsense"], Writes::Messages),
    ];
    for (words, writes) in commands {
        let (has_results, has_messages) = (*writes != Writes::Messages, *writes != Writes::Results);
        let usual = hodo(words);
        assert!(!has_results || !usual.stdout.is_empty(), "{words:?}: {usual:?}");
        assert!(!has_messages || !usual.stderr.is_empty(), "{words:?}: {usual:?}");
        let failed = |is_lost: bool| if is_lost && usual.code == 0 { 3 } else { usual.code };
        for (how, end) in nowhere() {
            let ran = wait(command(words).stdout(end).spawn().unwrap()).expect("it ends");
            assert_eq!(ran.code, failed(has_results && how == "full"), "{words:?}, output {how}: {ran:?}");
            assert_eq!(
                ran.stderr.contains("can't write the output"),
                has_results && how == "full",
                "{words:?}, output {how}: {ran:?}"
            );
        }
        for (how, end) in nowhere() {
            let ran = wait(command(words).stderr(end).spawn().unwrap()).expect("it ends");
            assert_eq!(ran.code, failed(has_messages && how == "full"), "{words:?}, messages {how}: {ran:?}");
            assert_eq!(without_size(&ran.stdout), without_size(&usual.stdout), "{words:?}, messages {how}");
        }
        for ((how, out), (_, err)) in nowhere().into_iter().zip(nowhere()) {
            let ran = wait(command(words).stdout(out).stderr(err).spawn().unwrap()).expect("it ends");
            assert_eq!(
                ran.code,
                failed(how == "full" && (has_results || has_messages)),
                "{words:?}, both {how}: {ran:?}"
            );
        }
    }
}

#[test]
fn limits_count_lines_and_rows() {
    let folder = Folder::new();
    let input = input(&folder, 100);
    for what in ["--insns", "--packets"] {
        let whole = hodo(&arguments(&["script", what], &input)).fine().stdout;
        for limit in [0, 1, 17, 1_000_000] {
            let some =
                hodo(&arguments(&["script", what, "--limit", &limit.to_string()], &input)).fine().stdout;
            let expected: String = whole.split_inclusive('\n').take(limit).collect();
            assert_eq!(some, expected, "{what} --limit {limit}");
        }
    }
    let rows = |limit: &str| {
        let words = ["report", "functions", "--format", "jsonl", "--limit", limit];
        hodo(&arguments(&words, &input)).fine().stdout.lines().count()
    };
    assert_eq!(rows("1"), 1);
    assert_eq!(rows("0"), 0);
}

#[test]
fn formats_of_a_report_agree() {
    let folder = Folder::new();
    let input = input(&folder, 100);
    let report = |format: &str| hodo(&arguments(&["report", "functions", "--format", format], &input)).fine();
    let json = report("json").json();
    let rows = json["rows"].as_array().unwrap();
    let names: Vec<&str> =
        json["columns"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    let csv = report("csv").stdout;
    assert_eq!(csv.lines().next(), Some(names.join(",").as_str()));
    assert_eq!(csv.lines().count(), rows.len() + 1);
    let lines = report("jsonl").stdout;
    assert_eq!(lines.lines().count(), rows.len());
    for (line, row) in lines.lines().zip(rows) {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        for (name, value) in names.iter().zip(row.as_array().unwrap()) {
            assert_eq!(&object[name], value);
        }
    }
    let own = names.iter().position(|&name| name == "self_instructions").unwrap();
    let sum: u64 = rows.iter().map(|row| row[own].as_u64().unwrap()).sum();
    let executed = program::addresses(0x1000, 100).len() as u64;
    assert_eq!(json["summary"]["instructions"], executed);
    assert_eq!(sum, executed);
    assert!(report("text").stdout.starts_with("functions\n"));
}
