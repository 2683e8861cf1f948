//! The crate `riscv-etrace` beside the account. It knows neither branch prediction nor the jump target cache.

use std::{
    collections::HashMap,
    num::NonZeroU8,
    time::{Duration, Instant},
};

use hodo_etrace::Parameters;
use riscv_etrace::{
    binary,
    config::Parameters as Theirs,
    instruction::{Instruction, Kind, base},
    packet,
    tracer::{self, Tracer, item},
    types::stack::VecStack,
};

use crate::{account::Account, ours::Opinion};

fn width(bits: u8) -> NonZeroU8 {
    NonZeroU8::new(bits).unwrap_or(NonZeroU8::MIN)
}

fn parameters(ours: &Parameters) -> Theirs {
    Theirs {
        call_counter_size_p: ours.call_counter_size,
        return_stack_size_p: ours.return_stack_size,
        sijump_p: ours.sijump,
        iaddress_width_p: width(ours.iaddress_width),
        iaddress_lsb_p: ours.iaddress_lsb,
        ecause_width_p: width(ours.ecause_width),
        privilege_width_p: width(ours.privilege_width),
        time_width_p: width(ours.time_width),
        notime_p: ours.time_width == 0,
        context_width_p: width(ours.context_width),
        nocontext_p: ours.context_width == 0,
        ..Theirs::default()
    }
}

/// Decodes a stream of messages and compares with what ran.
pub(crate) fn compare(stream: &[u8], ours: &Parameters, account: &Account, expected: &[u64]) -> Opinion {
    let mut code: HashMap<u64, Instruction<Option<Kind>>> = HashMap::new();
    for (&start, bytes) in &account.ran {
        let mut address = start;
        while let Some(rest) = bytes.get((address - start) as usize..).filter(|rest| !rest.is_empty()) {
            let mut padded = rest.to_vec();
            padded.truncate(4);
            padded.resize(4, 0);
            let Some((instruction, _)) = Instruction::extract(&padded, &base::Set::Rv64I) else { break };
            code.insert(address, instruction);
            address += if rest[0] & 3 == 3 { 4 } else { 2 };
        }
    }
    let parameters = parameters(ours);
    let mut decoder = packet::builder().with_params(&parameters).decoder(stream);
    let tracer: Result<Tracer<_, VecStack>, _> = tracer::builder()
        .with_binary(binary::from_fn(move |address| code.get(&address).copied().ok_or(address)))
        .with_params(&parameters)
        .build();
    let mut opinion = Opinion::default();
    let mut tracer = match tracer {
        Ok(tracer) => tracer,
        Err(error) => {
            opinion.difference = Some(format!("{error:?}"));
            return opinion;
        }
    };
    let mut at = 0;
    let begin = Instant::now();
    while decoder.bytes_left() > 0 {
        let payload = match decoder.decode_smi_packet().and_then(|packet| packet.decode_payload()) {
            Ok(payload) => payload,
            Err(error) => {
                opinion.difference = Some(format!("instruction {at}: {error:?}"));
                break;
            }
        };
        if let Err(error) = tracer.process_payload(&payload) {
            opinion.difference = Some(format!("instruction {at}: {error:?}: {payload:?}"));
            break;
        }
        for item in tracer.by_ref() {
            match item {
                Ok(item) => match item.kind() {
                    item::Kind::Regular(_) => {
                        if expected.get(at) != Some(&item.pc()) {
                            let wanted = expected.get(at);
                            opinion.difference =
                                Some(format!("instruction {at}: {:x}, not {wanted:x?}", item.pc()));
                            return opinion;
                        }
                        at += 1;
                    }
                    item::Kind::Trap(_) => opinion.traps += 1,
                    item::Kind::Context(_) => {}
                },
                Err(error) => {
                    opinion.difference = Some(format!("instruction {at}: {error:?}: {payload:?}"));
                    return opinion;
                }
            }
        }
    }
    opinion.took = begin.elapsed();
    opinion.equal = at as u64;
    if opinion.difference.is_none() && at != expected.len() {
        opinion.difference = Some(format!("{at} instructions of {}", expected.len()));
    }
    opinion
}

/// Millions of instructions in a second.
pub(crate) fn speed(instructions: u64, took: Duration) -> f64 {
    instructions as f64 / took.as_secs_f64().max(1e-9) / 1e6
}
