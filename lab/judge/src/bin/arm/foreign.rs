//! Snapshot folders that others wrote: our decoding beside OpenCSD's, instruction by instruction.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, Isa, NoLabels, Origin, Program};
use hodo_etm::{
    Config, Registers,
    flow::Decoder,
    frames,
    packet::{A_SYNC, find_sync},
};
use hodo_flow::{Event, Executed, Sink, Switch};

use crate::Outcome;

/// Values by key, by section.
type Settings = BTreeMap<String, BTreeMap<String, String>>;

/// Reads a file of settings: `[section]`, `key=value`; of registers, `name(number)=value`.
fn settings(file: &Path) -> Outcome<Settings> {
    let (mut all, mut section) = (Settings::new(), String::new());
    for line in fs::read_to_string(file)?.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            let key = key.split('(').next().unwrap_or_default().trim().to_owned();
            all.entry(section.clone()).or_default().insert(key, value.trim().to_owned());
        }
    }
    Ok(all)
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A snapshot.
struct Snapshot {
    /// The settings of each trace unit, by trace ID.
    units: BTreeMap<u8, Config>,
    /// Code by address.
    code: Vec<(u64, Vec<u8>)>,
    /// Bytes, and whether they are frames.
    buffers: Vec<(Vec<u8>, bool)>,
}

impl Snapshot {
    fn read(folder: &Path) -> Outcome<Snapshot> {
        let main = settings(&folder.join("snapshot.ini"))?;
        let mut snapshot = Snapshot { units: BTreeMap::new(), code: Vec::new(), buffers: Vec::new() };
        for file in main.get("device_list").ok_or("no list of devices")?.values() {
            snapshot.device(folder, &settings(&folder.join(file))?)?;
        }
        let metadata = main.get("trace").and_then(|trace| trace.get("metadata")).ok_or("no trace")?;
        let trace = settings(&folder.join(metadata))?;
        for (name, buffer) in &trace {
            if let Some(files) = buffer.get("file").filter(|_| name != "trace_buffers") {
                let mut bytes = Vec::new();
                for file in files.split(',') {
                    bytes.extend(fs::read(folder.join(file.trim()))?);
                }
                let format = buffer.get("format").map_or("coresight", String::as_str);
                snapshot.buffers.push((bytes, format != "source_data"));
            }
        }
        Ok(snapshot)
    }

    fn device(&mut self, folder: &Path, device: &Settings) -> Outcome {
        let empty = BTreeMap::new();
        let registers = device.get("regs").unwrap_or(&empty);
        let register = |name: &str| registers.get(name).and_then(|value| number(value)).unwrap_or(0) as u32;
        let kind = device.get("device").and_then(|device| device.get("type")).map_or("", String::as_str);
        if kind.starts_with("ETM4") || kind.starts_with("ETE") {
            let read = Registers {
                config: register("TRCCONFIGR"),
                trace_id: register("TRCTRACEIDR"),
                id0: register("TRCIDR0"),
                id1: register("TRCIDR1"),
                id2: register("TRCIDR2"),
                id8: register("TRCIDR8"),
                device_architecture: register("TRCDEVARCH"),
            };
            self.units.insert((read.trace_id & 0x7f) as u8, Config::new(&read));
        }
        for (_, dump) in device.iter().filter(|(name, _)| name.starts_with("dump")) {
            let value = |key: &str| dump.get(key).and_then(|value| number(value));
            let (Some(file), Some(address)) = (dump.get("file"), value("address")) else { continue };
            let bytes = fs::read(folder.join(file.trim_matches('"')))?;
            let offset = value("offset").unwrap_or(0) as usize;
            let rest = bytes.get(offset..).unwrap_or_default();
            let length = value("length").map_or(rest.len(), |length| rest.len().min(length as usize));
            self.code.push((address, rest[..length].to_vec()));
        }
        Ok(())
    }

    fn space(&self) -> AddressSpace<'_> {
        let mut space = AddressSpace::new();
        for (module, (address, bytes)) in self.code.iter().enumerate() {
            let content = Content { bytes, origin: Origin { module: module as u32, offset: *address } };
            space.map(*address..address + bytes.len() as u64, content, 0);
        }
        space
    }
}

/// The addresses that were decoded, and the number of gaps.
#[derive(Default)]
struct Decoded {
    addresses: Vec<u64>,
    gaps: BTreeMap<String, u32>,
}

impl Sink for Decoded {
    fn executed(&mut self, executed: Executed<'_>) {
        self.addresses.extend(executed.addresses());
    }

    fn event(&mut self, event: Event) {
        if let Event::Gap(gap) = event {
            *self.gaps.entry(gap.trouble.to_string()).or_default() += 1;
        }
    }
}

/// Compares all sources of a folder. The error says how many differ.
pub(crate) fn judge(folder: &Path) -> Outcome {
    let snapshot = Snapshot::read(folder)?;
    let space = snapshot.space();
    let theirs = listed(folder, &space)?;
    let mut differences = 0;
    for (bytes, is_framed) in &snapshot.buffers {
        let sources = match is_framed {
            true => frames::sources(bytes),
            false => {
                let id = snapshot.units.keys().next().copied().unwrap_or(0);
                vec![frames::Source { id, bytes: bytes.clone(), losses: Vec::new() }]
            }
        };
        for source in sources {
            let Some(config) = snapshot.units.get(&source.id) else { continue };
            let ours = decode(&space, &source.bytes, config);
            let expected = theirs.get(&source.id).map_or(&[][..], Vec::as_slice);
            let same =
                ours.addresses.iter().zip(expected).take_while(|(ours, theirs)| ours == theirs).count();
            let is_equal = ours.addresses == expected;
            differences += u32::from(!is_equal);
            println!(
                "source {:02x}: {} instructions, OpenCSD {}: {}",
                source.id,
                ours.addresses.len(),
                expected.len(),
                if is_equal { "equal".to_owned() } else { format!("equal up to number {same}") },
            );
            for (reason, count) in &ours.gaps {
                println!("  {count} gaps: {reason}");
            }
        }
    }
    match differences {
        0 => Ok(()),
        _ => Err(format!("{differences} sources differ").into()),
    }
}

fn decode(space: &AddressSpace<'_>, bytes: &[u8], config: &Config) -> Decoded {
    let mut decoded = Decoded::default();
    let mut programs = [Program::new(space, &NoLabels)];
    let schedule = [Switch { at: Tsc(0), program: 0, context: 0 }];
    let mut next = find_sync(bytes);
    while let Some(start) = next {
        let behind = start + A_SYNC.len();
        next = find_sync(&bytes[behind..]).map(|at| behind + at);
        let span = start..next.unwrap_or(bytes.len());
        Decoder::new(bytes, span, config, &schedule).decode(&mut programs, &mut decoded);
    }
    decoded
}

/// Returns the addresses that OpenCSD's program decodes, by trace ID.
fn listed(folder: &Path, space: &AddressSpace<'_>) -> Outcome<BTreeMap<u8, Vec<u64>>> {
    let mut child = Command::new("trc_pkt_lister")
        .args(["-decode_only", "-no_time_print", "-logstdout", "-ss_dir", "."])
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = child.stdout.take().ok_or("trc_pkt_lister has no output")?;
    let mut all: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
    for line in BufReader::with_capacity(1 << 20, output).split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        let Some((head, range)) = line.split_once("INSTR_RANGE(exec range=0x") else { continue };
        let id =
            head.split("ID:").nth(1).and_then(|text| u8::from_str_radix(text.split(';').next()?, 16).ok());
        let mut ends = range.split(":[0x").map(|part| part.split([']', ' ', ')']).next().unwrap_or_default());
        let mut address = || u64::from_str_radix(ends.next()?, 16).ok();
        let (Some(id), Some(begin), Some(end)) = (id, address(), address()) else {
            return Err(format!("no range in {line}").into());
        };
        let isa = if line.contains("ISA=T32") { Isa::T32 } else { Isa::A64 };
        let addresses = all.entry(id).or_default();
        let mut at = begin;
        while at < end {
            addresses.push(at);
            let bytes = space.at(at, 0).map_or(&[][..], |(content, _)| content.bytes);
            at += isa.instruction(bytes, at).map_or(4, |instruction| instruction.step().length.into());
        }
    }
    child.wait()?;
    Ok(all)
}
