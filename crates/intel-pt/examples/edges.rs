//! Prints how many edges a raw trace covers, and the digest of its complete path:
//! `cargo run -p hodo-intel-pt --example edges -- TRACE CODE@ADDRESS…`.

use std::{env, error::Error, fs};

use hodo_clock::Tsc;
use hodo_code::{AddressSpace, Content, NoLabels, Origin, Program};
use hodo_intel_pt::{
    Config, EdgeMap,
    flow::{Decoder, Memos, Switch},
    packet::{PSB, find_psb},
};

/// The code of a file at an address.
struct Code {
    address: u64,
    bytes: Vec<u8>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let trace = fs::read(arguments.next().ok_or("usage: edges TRACE CODE@ADDRESS…")?)?;
    let mut files = Vec::new();
    for argument in arguments {
        let (file, address) = argument.rsplit_once('@').ok_or("expected CODE@ADDRESS")?;
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16)?;
        files.push(Code { address, bytes: fs::read(file)? });
    }
    let mut space = AddressSpace::new();
    for Code { address, bytes } in &files {
        let content = Content { bytes, origin: Origin { module: 0, offset: *address } };
        space.map(*address..address + bytes.len() as u64, content, 0);
    }
    let mut programs = [Program::new(&space, &NoLabels)];
    let mut memos = Memos::default();
    let mut map = vec![0; EdgeMap::USUAL_SIZE];
    let mut edges = EdgeMap::new(&mut map).with_path();
    let (config, schedule) = (Config::default(), [Switch { at: Tsc(0), program: 0, context: 0 }]);
    let next = |from: usize| Some(from + find_psb(trace.get(from..)?)?);
    let mut begin = next(0);
    while let Some(start) = begin {
        begin = next(start + PSB.len());
        let decoder = Decoder::new(&trace, start..begin.unwrap_or(trace.len()), &config, &schedule);
        decoder.decode_with_memo(&mut programs, &mut memos, &mut edges);
    }
    let path = edges.path().unwrap_or(0);
    let covered = map.iter().filter(|&&count| count > 0).count();
    println!("{covered} edges, path {path:016x}");
    Ok(())
}
