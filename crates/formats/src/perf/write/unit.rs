//! The unit that wrote a trace: its AUXTRACE_INFO record.

use hodo_etm::{Registers, frames};

use super::{
    super::layout::{auxtrace_type, coresight_config},
    Source,
    bodies::words,
};

/// A trace unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceUnit<'a> {
    /// Intel PT of an x86 processor.
    #[default]
    IntelPt,
    /// An ETMv4 or ETE of an Arm processor, whose bytes are in frames. Of sources per CPU, each CPU has a unit with these
    /// registers and a [trace ID](TraceUnit::trace_id) of its own.
    CoreSight(Registers),
    /// A trace encoder of a RISC-V hart, with its settings in TOML.
    RiscV(&'a str),
}

/// How a CoreSight recording marks the description of an ETMv4, and of an ETE (Linux, `tools/perf/util/cs-etm.h`).
const ETM_V4: u64 = 0x4040_4040_4040_4040;
const ETE: u64 = 0x5050_5050_5050_5050;

/// Version of the records.
const VERSION: u64 = 1;

/// TS_SOURCE of a unit: its times are those of the virtual counter, which TIME_CONV converts to the recording's clock.
const VIRTUAL_COUNTER: u32 = 1;

impl TraceUnit<'_> {
    /// The name of its processors' architecture.
    pub(super) fn architecture(self) -> &'static str {
        match self {
            TraceUnit::IntelPt => "x86_64",
            TraceUnit::CoreSight(_) => "aarch64",
            TraceUnit::RiscV(_) => "riscv64",
        }
    }

    /// Returns the trace ID of a CPU, which marks its bytes in frames: that of the registers for CPU 0, and the following
    /// ones for the others. `None` if the unit has no frames, or there are too many CPUs for its IDs.
    pub fn trace_id(self, cpu: u32) -> Option<u8> {
        let TraceUnit::CoreSight(registers) = self else { return None };
        let id = u8::try_from(registers.trace_id.checked_add(cpu)?).ok()?;
        (id < frames::FIRST_RESERVED).then_some(id)
    }

    /// `perf_event_attr.config` of the event; `config` is that of the setup. With times in it, perf takes the thread from context
    /// IDs, so an event of threads lacks them.
    pub(super) fn event_config(self, config: u64, per_cpu: bool) -> u64 {
        match self {
            TraceUnit::CoreSight(registers) if per_cpu => coresight_config::of(registers.config),
            _ => config,
        }
    }

    /// The body of AUXTRACE_INFO. `pmu` is the type of its events.
    pub(super) fn auxtrace_info(self, pmu: u32, is_snapshot: bool, sources: &[Source]) -> Vec<u8> {
        match self {
            TraceUnit::IntelPt => Vec::new(),
            TraceUnit::CoreSight(registers) => {
                let units = self.coresight_units(&registers, sources);
                let pmu_and_cpus = u64::from(pmu) << 32 | units.len() as u64;
                let head = [auxtrace_type::CS_ETM.into(), VERSION, pmu_and_cpus, is_snapshot.into()];
                words(&[&head[..], &units.concat()].concat())
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

    /// The descriptions of the units of all CPUs; of threads, that of CPU 0 stands for all.
    fn coresight_units(self, registers: &Registers, sources: &[Source]) -> Vec<Vec<u64>> {
        let of_cpu = |source: &Source| {
            let Source::Cpu(cpu) = *source else { return None };
            let trace_id = self.trace_id(cpu)?.into();
            Some(coresight_unit(cpu, &Registers { trace_id, ..*registers }, Some(VIRTUAL_COUNTER)))
        };
        let of_cpus: Vec<_> = sources.iter().filter_map(of_cpu).collect();
        if of_cpus.is_empty() { vec![coresight_unit(0, registers, None)] } else { of_cpus }
    }
}

/// The description of a CPU's unit.
fn coresight_unit(cpu: u32, registers: &Registers, time_source: Option<u32>) -> Vec<u64> {
    let Registers { config, trace_id, id0, id1, id2, id8, device_architecture } = *registers;
    let status = 0xcc; // TRCAUTHSTATUS: tracing of non-secure code.
    let mut words = vec![config, trace_id, id0, id1, id2, id8, status];
    let magic = if device_architecture == 0 { ETM_V4 } else { ETE };
    if device_architecture != 0 {
        words.push(device_architecture);
    }
    words.extend(time_source);
    let head = [magic, cpu.into(), words.len() as u64];
    head.into_iter().chain(words.into_iter().map(u64::from)).collect()
}
