//! The reference codec of E-Trace: `lab/judges/te_codec.c` gives it the fields of each packet.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use hodo_etrace::{
    Parameters,
    encoder::Encoder,
    packet::{Options, Packet, Prediction, Qualification, Reported, Support},
};
use workbench::{Outcome, command};

use crate::{
    Mode,
    account::{Account, Interrupts},
    reference::{Found, addresses, each},
};

/// The compiled program.
pub(crate) struct Codec(PathBuf);

impl Codec {
    /// Compiles the codec of a checkout of the specification, if it has one.
    pub(crate) fn compile(specification: &Path, work: &Path) -> Outcome<Option<Codec>> {
        let (codec, disassembler) =
            (specification.join("te_codec/src"), specification.join("referenceFlow/riscv-disassembler/src"));
        if !codec.join("decoder-algorithm-public.c").is_file() {
            return Ok(None);
        }
        let program = work.join("te_codec");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-w", "-I"]).arg(&codec).arg("-I").arg(&disassembler).arg("-o").arg(&program);
        gcc.arg(command::root().join("lab/judges/te_codec.c")).arg(codec.join("decoder-algorithm-public.c"));
        gcc.arg(codec.join("te-codec-utilities.c")).arg(disassembler.join("riscv-disas.c"));
        command::quietly(&mut gcc)?;
        Ok(Some(Codec(program)))
    }

    /// What it decodes of a thread in a mode. It infers jumps that follow from the instruction before them, whatever the options say.
    pub(crate) fn decode(
        &self,
        work: &Path,
        mode: &Mode,
        account: &Account,
        thread: usize,
    ) -> Outcome<Found> {
        let parameters = Parameters { sijump: true, ..mode.configuration().parameters };
        let options = Options { sijump: true, ..mode.options };
        let mut encoder = Encoder::new(&parameters, options, mode.resync_after);
        let mut words = vec![
            parameters.return_stack_size.into(),
            parameters.cache_size.into(),
            parameters.bpred_size.into(),
            parameters.iaddress_lsb.into(),
        ];
        account.encode(thread, Interrupts::All, 0..0, &mut encoder, |encoder| {
            let options = encoder.options();
            for packet in encoder.take() {
                // The codec knows no traps without a handler: to it, tracing ends after the last instruction, which was reported.
                let is_end = matches!(packet, Packet::Trap(trap) if !trap.is_handler);
                let end = Support {
                    enabled: true,
                    qualification: Qualification::EndedReported,
                    options,
                    ..Support::default()
                };
                let packet = if is_end { Packet::Support(end) } else { packet };
                words.extend(record(&packet, &parameters));
            }
        });
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
        fs::write(work.join("packets"), bytes)?;
        let mut code = Vec::new();
        each(account, |address, bytes, _| {
            code.extend(address.to_le_bytes());
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            code.extend(padded);
            Ok(())
        })?;
        fs::write(work.join("code"), code)?;
        let mut program = Command::new(&self.0);
        program.args(["packets", "code", "decoded"]).current_dir(work).stdout(Stdio::null());
        addresses(&mut program, &work.join("decoded"))
    }
}

/// Words of a packet, in the order of `struct record` of `te_codec.c`.
const WORDS: usize = 15;

/// The fields of a packet as the codec has them.
fn record(packet: &Packet, parameters: &Parameters) -> [u64; WORDS] {
    let mut record = Record::default();
    match packet {
        Packet::Start(start) => {
            record.format = 3;
            record.branch = u64::from(!start.taken);
            record.privilege = start.context.privilege.into();
            record.address = start.address >> parameters.iaddress_lsb;
        }
        Packet::Trap(trap) => {
            (record.format, record.subformat) = (3, 1);
            record.branch = u64::from(!trap.taken);
            record.privilege = trap.context.privilege.into();
            record.cause = trap.cause;
            record.interrupt = trap.is_interrupt.into();
            record.address = trap.address.unwrap_or_default() >> parameters.iaddress_lsb;
            record.value = trap.value.unwrap_or_default();
        }
        Packet::Context(context) => {
            (record.format, record.subformat) = (3, 2);
            record.privilege = context.privilege.into();
        }
        Packet::Support(support) => {
            (record.format, record.subformat) = (3, 3);
            record.enabled = support.enabled.into();
            record.status = match support.qualification {
                Qualification::Unchanged => 0,
                Qualification::EndedReported => 1,
                Qualification::Lost => 2,
                Qualification::Ended => 3,
            };
            let Options { implicit_return, full_address, jump_target_cache, branch_prediction, .. } =
                support.options;
            let options = [implicit_return, full_address, jump_target_cache, branch_prediction];
            record.options =
                options.iter().enumerate().fold(0, |bits, (bit, set)| bits | u64::from(*set) << bit);
        }
        Packet::Address(reported) => {
            record.format = 2;
            record.report(reported);
        }
        Packet::Branches { map, reported } => {
            record.format = 1;
            record.branches = if reported.is_some() { map.count.into() } else { 0 };
            record.map = map.not_taken.into();
            reported.iter().for_each(|reported| record.report(reported));
        }
        Packet::Predicted { count, end } => {
            record.branches = *count;
            record.prediction = match end {
                Prediction::Failed => 0,
                Prediction::Address(_) => 2,
                Prediction::FailedAt(_) => 3,
            };
            if let Prediction::Address(reported) | Prediction::FailedAt(reported) = end {
                record.report(reported);
            }
        }
        Packet::Cached { index, map, depth } => {
            record.extension = 1;
            record.index = (*index).into();
            record.branches = map.count.into();
            record.map = map.not_taken.into();
            record.depth(*depth);
        }
    }
    record.words()
}

/// The fields of `te_inst_t`.
#[derive(Default)]
struct Record {
    format: u64,
    subformat: u64,
    address: u64,
    branches: u64,
    map: u64,
    /// notify, updiscon, irfail: one bit each.
    flags: u64,
    depth: u64,
    branch: u64,
    privilege: u64,
    cause: u64,
    interrupt: u64,
    value: u64,
    enabled: u64,
    status: u64,
    options: u64,
    extension: u64,
    index: u64,
    prediction: u64,
}

impl Record {
    fn report(&mut self, reported: &Reported) {
        self.address = reported.address as u64;
        self.flags |= u64::from(reported.notify) | u64::from(reported.updiscon) << 1;
        self.depth(reported.depth);
    }

    fn depth(&mut self, depth: Option<u32>) {
        if let Some(depth) = depth {
            self.flags |= 4;
            self.depth = depth.into();
        }
    }

    fn words(&self) -> [u64; WORDS] {
        [
            self.format | self.subformat << 8 | self.extension << 16 | self.prediction << 24,
            self.address,
            self.branches,
            self.map,
            self.flags,
            self.depth,
            self.branch,
            self.privilege,
            self.cause,
            self.interrupt,
            self.value,
            self.enabled,
            self.status,
            self.options,
            self.index,
        ]
    }
}
