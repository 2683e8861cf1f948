//! The settings of trace units.

use hodo_etm::encoder::Settings;

/// Settings, and how the bytes are stored.
#[derive(Clone, Copy)]
pub(crate) struct Configuration {
    pub(crate) name: &'static str,
    pub(crate) settings: Settings,
    /// Instructions between timestamps, if there are any.
    pub(crate) timestamps: Option<usize>,
    pub(crate) frames: bool,
    /// Whether perf 6.1 decodes the same from a recording, whose trace has frames and timestamps in addition.
    pub(crate) perf_reads: bool,
}

pub(crate) const PLAIN: Settings = Settings {
    is_ete: false,
    is_m_profile: false,
    return_stack: false,
    cycle_threshold: None,
    cycles_commit: false,
    context_ids: false,
    synchronization: 4096,
    speculation_depth: 0,
};

const fn named(name: &'static str, settings: Settings) -> Configuration {
    Configuration { name, settings, timestamps: None, frames: false, perf_reads: true }
}

/// Commits within cycle counts are not among them: OpenCSD 1.3.3 does not apply them. The tests of `hodo-etm` do.
pub(crate) const CONFIGURATIONS: &[Configuration] = &[
    named("plain", PLAIN),
    named("return-stack", Settings { return_stack: true, ..PLAIN }),
    named("cycles", Settings { cycle_threshold: Some(4), ..PLAIN }),
    named("contexts", Settings { context_ids: true, ..PLAIN }),
    named("ete", Settings { is_ete: true, ..PLAIN }),
    named("synchronization", Settings { synchronization: 100, return_stack: true, ..PLAIN }),
    named("speculation", Settings { speculation_depth: 12, ..PLAIN }),
    named("speculation-cycles", Settings { speculation_depth: 30, cycle_threshold: Some(2), ..PLAIN }),
    Configuration { frames: true, ..named("frames", PLAIN) },
    Configuration { timestamps: Some(500), ..named("timestamps", PLAIN) },
    Configuration {
        timestamps: Some(2000),
        frames: true,
        ..named("all", Settings { return_stack: true, cycle_threshold: Some(4), context_ids: true, ..PLAIN })
    },
    Configuration {
        timestamps: Some(2000),
        frames: true,
        ..named(
            "all-ete",
            Settings {
                is_ete: true,
                return_stack: true,
                cycle_threshold: Some(4),
                context_ids: true,
                ..PLAIN
            },
        )
    },
];
