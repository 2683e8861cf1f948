//! The unit that wrote a trace: its AUXTRACE_INFO record.

use hodo_etm::Registers;

use super::{super::layout::auxtrace_type, bodies::words};

/// A trace unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceUnit<'a> {
    /// Intel PT of an x86 processor.
    #[default]
    IntelPt,
    /// An ETMv4 or ETE of an Arm processor, whose bytes are in frames.
    CoreSight(Registers),
    /// A trace encoder of a RISC-V hart, with its settings in TOML.
    RiscV(&'a str),
}

/// How a CoreSight recording marks the description of an ETMv4, and of an ETE (Linux, `tools/perf/util/cs-etm.h`).
const ETM_V4: u64 = 0x4040_4040_4040_4040;
const ETE: u64 = 0x5050_5050_5050_5050;

/// Version of the records.
const VERSION: u64 = 1;

impl TraceUnit<'_> {
    /// The name of its processors' architecture.
    pub(super) fn architecture(self) -> &'static str {
        match self {
            TraceUnit::IntelPt => "x86_64",
            TraceUnit::CoreSight(_) => "aarch64",
            TraceUnit::RiscV(_) => "riscv64",
        }
    }

    /// The body of AUXTRACE_INFO. `pmu` is the type of its events.
    pub(super) fn auxtrace_info(self, pmu: u32, is_snapshot: bool) -> Vec<u8> {
        match self {
            TraceUnit::IntelPt => Vec::new(),
            TraceUnit::CoreSight(registers) => {
                let head = [auxtrace_type::CS_ETM.into(), VERSION, u64::from(pmu) << 32 | 1];
                words(&[&head[..], &[is_snapshot.into()], &coresight_unit(&registers)].concat())
            }
            TraceUnit::RiscV(settings) => {
                let head = [auxtrace_type::RISCV.into(), VERSION, is_snapshot.into(), settings.len() as u64];
                let mut body = words(&head);
                body.extend_from_slice(settings.as_bytes());
                body.resize(body.len().next_multiple_of(8), 0);
                body
            }
        }
    }
}

/// The description of the unit of CPU 0, which stands for all.
fn coresight_unit(registers: &Registers) -> Vec<u64> {
    let Registers { config, trace_id, id0, id1, id2, id8, device_architecture } = *registers;
    let status = 0xcc; // TRCAUTHSTATUS: tracing of non-secure code.
    let mut words = vec![config, trace_id, id0, id1, id2, id8, status];
    let magic = if device_architecture == 0 { ETM_V4 } else { ETE };
    if device_architecture != 0 {
        words.push(device_architecture);
    }
    let cpu = 0;
    let head = [magic, cpu, words.len() as u64];
    head.into_iter().chain(words.into_iter().map(u64::from)).collect()
}
