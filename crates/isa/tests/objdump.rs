//! Compares classes, targets and text of RISC-V instructions with objdump: all instructions of 16 bits, and a sample of
//! every encoding of 32 bits.

use std::{fmt::Write, fs, process::Command};

use hodo_isa::riscv::{Instruction, Kind, Set, decode, show};

const BASE: u64 = 0x10000;

/// Names with which instructions begin that objdump knows and we write as data: vectors, cryptography, hypervisor loads,
/// other float formats and extensions of one vendor.
const NOT_WRITTEN: &[&str] = &[
    "v", "th.", "hlv", "hsv", "aes", "sha", "sm3", "sm4", "brev8", "xperm", "zip", "unzip", "pack", "flq",
    "fsq", "flh", "fsh",
];

/// Instructions that this objdump does not know.
const NOT_KNOWN: &[&str] =
    &["czero.", "mnret", "c.lbu", "c.lh", "c.sb", "c.sh", "c.mul", "c.zext", "c.sext", "c.not"];

/// The formats of floats that we do not write: half and quad precision.
fn is_other_float(name: &str) -> bool {
    name.starts_with('f') && name.split('.').skip(1).any(|format| format == "h" || format == "q")
}

#[test]
fn all_encodings_are_those_of_objdump() {
    for (set, base) in [(Set::RV64GC, "rv64"), (Set::RV32GC, "rv32")] {
        let code = samples();
        let lines = disassemble(&code, base);
        let (mut address, mut compared, mut differences) = (BASE, 0, Vec::new());
        for line in lines {
            let at = usize::try_from(address - BASE).expect("an offset");
            assert_eq!(line.address, address, "{base}: {}", line.text);
            let bytes = &code[at..];
            let text = show(bytes, address, set).unwrap_or_default();
            let instruction = decode(bytes, address, set);
            address += line.length;
            if let Some(difference) = compare(&line, instruction, &text) {
                differences.push(format!("{base} {:x}: {difference}", word(&code, at, line.length)));
            }
            compared += 1;
        }
        assert_eq!(address, BASE + code.len() as u64);
        assert!(compared > 100_000);
        let count = differences.len();
        assert!(count == 0, "{count} differ:\n{}", differences[..count.min(100_000)].join("\n"));
    }
}

/// A line of a disassembly.
struct Line {
    address: u64,
    length: u64,
    text: String,
}

/// How our decoding differs from objdump's.
fn compare(line: &Line, instruction: Option<Instruction>, text: &str) -> Option<String> {
    let name = line.text.split(' ').next().unwrap_or_default();
    let is_data = name.starts_with('.') || name == "c.unimp" || name == "unimp";
    let kind = instruction.map_or(Kind::Plain, |instruction| instruction.kind);
    if instruction.is_some_and(|instruction| u64::from(instruction.length) != line.length) {
        return Some(format!("length of {text}, not of {}", line.text));
    }
    let known = |names: &[&str], name: &str| names.iter().any(|known| name.starts_with(known));
    if is_data {
        let ours = text.starts_with('.') || known(NOT_KNOWN, text);
        return (!ours).then(|| format!("`{text}`, not data"));
    }
    if text.starts_with('.') && (known(NOT_WRITTEN, name) || is_other_float(name)) {
        return (kind != Kind::Plain).then(|| format!("{kind:?} of {name}"));
    }
    if !is_same(text, &line.text) {
        return Some(format!("`{text}`, not `{}`", line.text));
    }
    let expected = expected_kind(name, &line.text);
    (!expected(kind)).then(|| format!("{kind:?} of {}", line.text))
}

/// Whether two texts are the same, apart from names of control and status registers that we write as numbers.
fn is_same(ours: &str, theirs: &str) -> bool {
    let operands = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let (ours, mut theirs) = (operands(ours), operands(theirs));
    if ours.len() == 3 && theirs.len() == 3 && ours[0].starts_with("csr") && ours[1].starts_with("0x") {
        theirs[1].clone_from(&ours[1]);
    }
    // Shifts by more than the register's width are reserved; objdump writes them all the same.
    let shift = theirs.last().and_then(|amount| u32::from_str_radix(amount.strip_prefix("0x")?, 16).ok());
    if ours[0].starts_with('.') && shift.is_some_and(|amount| (32..64).contains(&amount)) {
        return true;
    }
    // `c.nop` is an alias for objdump, and its reserved stack adjustment of zero is no data.
    let special = [("c.nop", "c.addi zero,0"), (".2byte 0x6101", "c.addi16sp sp,0")];
    ours == theirs || special.contains(&(&*ours.join(","), &*theirs.join(",")))
}

/// What the text of an instruction says of its kind.
fn expected_kind(name: &str, text: &str) -> Box<dyn Fn(Kind) -> bool> {
    let target = text.rsplit("0x").next().and_then(|target| u64::from_str_radix(target, 16).ok());
    match name {
        "beq" | "bne" | "blt" | "bge" | "bltu" | "bgeu" | "c.beqz" | "c.bnez" => {
            Box::new(move |kind| matches!(kind, Kind::Branch { target: to } if Some(to) == target))
        }
        "jal" | "c.j" | "c.jal" => {
            let links = text.contains(" ra,") || text.starts_with("c.jal");
            Box::new(move |kind| match kind {
                Kind::Jump { target: to, link } => Some(to) == target && (link == 1) == links,
                _ => false,
            })
        }
        "jalr" | "c.jr" | "c.jalr" => Box::new(|kind| matches!(kind, Kind::Indirect { .. })),
        "mret" | "sret" | "uret" | "dret" => Box::new(|kind| kind == Kind::TrapReturn),
        "ecall" => Box::new(|kind| kind == Kind::EnvironmentCall),
        "ebreak" | "c.ebreak" => Box::new(|kind| kind == Kind::Breakpoint),
        "lui" | "c.lui" | "auipc" => Box::new(|kind| matches!(kind, Kind::Upper { .. })),
        _ => Box::new(|kind| kind == Kind::Plain),
    }
}

/// Every instruction of 16 bits, and words of every opcode with all functions.
fn samples() -> Vec<u8> {
    let mut code = Vec::new();
    for half in (0..=u16::MAX).filter(|half| half & 3 != 3) {
        code.extend(half.to_le_bytes());
    }
    code.resize(code.len().next_multiple_of(4), 0);
    let mut random = 1_u32;
    for opcode in (3..0x80).step_by(4).filter(|opcode| opcode & 0x1c != 0x1c) {
        for functions in 0..1 << 10 {
            // The second source is part of some operations.
            let operations = [0x0f, 0x13, 0x1b, 0x53, 0x73].contains(&opcode);
            for rs2 in if operations { &[0, 1, 2, 3, 4, 5, 7, 24, 31][..] } else { &[0, 9] } {
                // Xorshift: registers of all numbers, and zero more often than they come.
                random ^= random << 13;
                random ^= random >> 17;
                random ^= random << 5;
                let rd = if random & 7 << 29 == 0 { 0 } else { random & 31 };
                let rs1 = if random & 7 << 26 == 0 { 0 } else { random >> 5 & 31 };
                let (funct3, funct7) = (functions & 7, functions >> 3);
                let word: u32 = opcode | rd << 7 | funct3 << 12 | rs1 << 15 | rs2 << 20 | funct7 << 25;
                code.extend(word.to_le_bytes());
            }
        }
    }
    for word in [0x73_u32, 0x0010_0073, 0x0020_0073, 0x1020_0073, 0x3020_0073, 0x7b20_0073, 0x1050_0073] {
        code.extend(word.to_le_bytes());
    }
    code
}

fn word(code: &[u8], at: usize, length: u64) -> u32 {
    let mut bytes = [0; 4];
    bytes[..length as usize].copy_from_slice(&code[at..at + length as usize]);
    u32::from_le_bytes(bytes)
}

/// Assembles the words as instructions of all extensions that we write, and disassembles them without aliases.
fn disassemble(code: &[u8], base: &str) -> Vec<Line> {
    let mut source = String::from(".text\n");
    let mut at = 0;
    while at < code.len() {
        let length = if code[at] & 3 == 3 { 4 } else { 2 };
        writeln!(source, ".insn {length}, {:#x}", word(code, at, length as u64)).expect("memory");
        at += length;
    }
    let folder = std::env::temp_dir().join(format!("hodo-isa-{}-{base}", std::process::id()));
    fs::create_dir_all(&folder).expect("a temporary folder");
    let (file, object) = (folder.join("code.s"), folder.join("code.o"));
    fs::write(&file, source).expect("a temporary file");
    let march = format!("-march={base}gch_zba_zbb_zbc_zbs_zicbom_zicboz_svinval");
    let abi = if base == "rv32" { "-mabi=ilp32d" } else { "-mabi=lp64d" };
    let assembled = Command::new("riscv64-unknown-elf-as")
        .args([&march, abi, "-mno-relax", "-o"])
        .args([&object, &file])
        .output()
        .expect("riscv64-unknown-elf-as of Debian's binutils-riscv64-unknown-elf");
    assert!(assembled.status.success(), "{}", String::from_utf8_lossy(&assembled.stderr));
    let output = Command::new("riscv64-unknown-elf-objdump")
        .args(["-d", "-z", "-M", "no-aliases"])
        .arg(format!("--adjust-vma={BASE}"))
        .arg(&object)
        .output()
        .expect("riscv64-unknown-elf-objdump is in the same package");
    fs::remove_dir_all(&folder).expect("the temporary folder is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("objdump writes UTF-8");
    text.lines().filter_map(line).collect()
}

/// Address, bytes and text are between tabs.
fn line(line: &str) -> Option<Line> {
    let (address, rest) = line.split_once(":\t")?;
    let (bytes, text) = rest.split_once('\t')?;
    let address = u64::from_str_radix(address.trim(), 16).ok()?;
    let text = text.split(" # ").next().unwrap_or_default().replace('\t', " ");
    // Targets have a symbol and lack the prefix: `bne a0,a1,1f2 <.text+0x1e2>`.
    let text = match text.trim().strip_suffix('>').and_then(|text| text.rsplit_once(" <")) {
        Some((text, _)) => match text.rfind([',', ' ']) {
            Some(before) => format!("{}0x{}", &text[..=before], &text[before + 1..]),
            None => text.to_owned(),
        },
        None => text.trim().to_owned(),
    };
    Some(Line { address, length: bytes.trim().len() as u64 / 2, text })
}
