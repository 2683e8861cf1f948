//! Options that describe a raw buffer, and the location of guests' code.

use std::{path::PathBuf, str::FromStr};

use clap::Args;
use hodo_engine::{GuestFiles, RawInput, RawUnit};
use hodo_formats::raw::{self, Owner};
use hodo_intel_pt::{Config, Cpu, Filter};

use crate::failure::Failure;

/// Settings that a raw buffer doesn't contain.
#[derive(Clone, Debug, Default, Args)]
pub struct Raw {
    /// Code of a raw buffer, on the host or in a guest: bytes of a file at an address
    #[arg(long, value_name = "FILE@ADDRESS[:OFFSET[:SIZE]]", requires = "buffer")]
    pub code: Vec<raw::Code>,
    /// Code of a raw buffer, on the host or in a guest: an ELF file
    #[arg(long, value_name = "FILE[@BASE]", requires = "buffer")]
    pub elf: Vec<raw::Elf>,
    /// Code of the host only; --code and --elf then belong to a guest
    #[arg(long, value_name = "FILE@ADDRESS[:OFFSET[:SIZE]]", requires = "pt")]
    pub host_code: Vec<raw::Code>,
    /// Code of the host only, as an ELF file
    #[arg(long, value_name = "FILE[@BASE]", requires = "pt")]
    pub host_elf: Vec<raw::Elf>,
    /// Code of a guest, as an ELF file; --code and --elf then belong to the host
    #[arg(long, value_name = "FILE[@BASE]", requires = "pt")]
    pub guest_elf: Vec<raw::Elf>,
    /// Address filter with which a raw buffer was recorded, in perf's syntax: 'filter ADDRESS/SIZE', 'tracestop
    /// ADDRESS/SIZE', separated by commas; or ADDRESS-ADDRESS (repeatable)
    #[arg(long, value_name = "FILTER", requires = "pt", value_parser = address_filter)]
    pub filter: Vec<String>,
    /// Processor that wrote a raw buffer
    #[arg(long, value_name = "FAMILY/MODEL[/STEPPING]", requires = "pt", value_parser = raw::cpu)]
    pub cpu: Option<Cpu>,
    /// MTC period of a raw buffer: RTIT_CTL.MTCFreq
    #[arg(long, value_name = "N", requires = "pt", value_parser = raw::mtc_frequency)]
    pub mtc_freq: Option<u8>,
    /// Nominal frequency of a raw buffer's processor: its maximum non-turbo ratio
    #[arg(long, value_name = "N", requires = "pt", value_parser = raw::max_nonturbo_ratio)]
    pub nom_freq: Option<u8>,
    /// Ratio of TSC and crystal clock of a raw buffer's processor: CPUID leaf 15H
    #[arg(long, value_name = "EAX:EBX", requires = "pt", value_parser = raw::tsc_ctc_ratio)]
    pub cpuid_0x15: Option<(u32, u32)>,
    /// Settings of a raw RISC-V trace: a TOML file (docs/riscv.md)
    #[arg(long, value_name = "FILE", requires = "etrace")]
    pub etrace_config: Option<PathBuf>,
    /// Settings of the trace units that wrote a raw buffer of CoreSight: their registers (docs/arm.md)
    #[arg(long, value_name = "FILE", requires = "etm")]
    pub etm_config: Option<PathBuf>,
}

/// The location of the code of virtual machines.
#[derive(Clone, Debug, Default, Args)]
pub struct Guests {
    /// Code of guests. Without a value: the code of the hypervisor's process at the same addresses, as in perf. For a
    /// raw buffer: bytes of a file at an address; --code and --elf then belong to the host
    #[arg(
        long,
        value_name = "FILE@ADDRESS[:OFFSET[:SIZE]]",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        allow_hyphen_values = true
    )]
    pub guest_code: Vec<GuestCode>,
    /// Folder with the files of each guest, by the pid of its hypervisor: PID/proc/kallsyms, PID/proc/kcore
    #[arg(long, value_name = "DIR", conflicts_with_all = ["pt", "guest_code"])]
    pub guestmount: Option<PathBuf>,
    /// Symbols of guests' kernels: a copy of a guest's /proc/kallsyms
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pt", "guest_code"])]
    pub guestkallsyms: Option<PathBuf>,
    /// Kernel image of guests as linked (vmlinux)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pt", "guest_code"])]
    pub guestvmlinux: Option<PathBuf>,
}

/// The value of `--guest-code`.
#[derive(Clone, Debug)]
pub enum GuestCode {
    /// No value: guests run the code of the hypervisor's process.
    OfHost,
    /// Code of a raw buffer.
    Bytes(raw::Code),
}

impl FromStr for GuestCode {
    type Err = raw::OptionError;

    fn from_str(text: &str) -> Result<GuestCode, raw::OptionError> {
        if text.is_empty() { Ok(GuestCode::OfHost) } else { text.parse().map(GuestCode::Bytes) }
    }
}

/// Checks that a filter can be parsed, and returns it unchanged.
fn address_filter(text: &str) -> Result<String, hodo_intel_pt::FilterError> {
    text.parse::<Filter>().map(|_| text.to_owned())
}

impl Guests {
    /// Returns the code of guests of a raw buffer.
    fn code(&self) -> Vec<raw::Code> {
        let code = self.guest_code.iter().filter_map(|code| match code {
            GuestCode::OfHost => None,
            GuestCode::Bytes(code) => Some(code.clone()),
        });
        code.collect()
    }

    /// Returns whether guests run the code of the hypervisor's process.
    fn run_code_of_host(&self) -> bool {
        self.guest_code.iter().any(|code| matches!(code, GuestCode::OfHost))
    }

    /// Returns where the code of a recording's guests is.
    pub fn files(&self) -> GuestFiles {
        GuestFiles {
            in_host: self.run_code_of_host(),
            mount: self.guestmount.clone(),
            kallsyms: self.guestkallsyms.clone(),
            vmlinux: self.guestvmlinux.clone(),
        }
    }
}

impl Raw {
    /// Returns the raw buffer of Intel PT `trace`, as described by the options.
    pub fn input(&self, trace: PathBuf, guests: &Guests) -> RawInput {
        let config = Config {
            cpu: self.cpu,
            mtc_frequency: self.mtc_freq,
            tsc_ctc_ratio: self.cpuid_0x15,
            max_nonturbo_ratio: self.nom_freq,
            filter: self.filter.join(","),
            ..Config::default()
        };
        self.of_unit(trace, RawUnit::IntelPt(config), guests)
    }

    /// Returns the raw buffer `trace` of a unit, with its code.
    fn of_unit(&self, trace: PathBuf, unit: RawUnit, guests: &Guests) -> RawInput {
        fn owned<T: Clone>(owner: Owner, code: &[T]) -> impl Iterator<Item = (Owner, T)> {
            code.iter().map(move |code| (owner, code.clone()))
        }
        let guest_code = guests.code();
        let code = owned(Owner::Traced, &self.code).chain(owned(Owner::Host, &self.host_code));
        let elf = owned(Owner::Traced, &self.elf).chain(owned(Owner::Host, &self.host_elf));
        RawInput {
            trace,
            code: code.chain(owned(Owner::Guest, &guest_code)).collect(),
            elf: elf.chain(owned(Owner::Guest, &self.guest_elf)).collect(),
            unit,
        }
    }

    /// Returns the raw RISC-V trace `trace`, as described by the options.
    pub fn riscv_input(&self, trace: PathBuf, guests: &Guests) -> RawInput {
        self.of_unit(trace, RawUnit::RiscV { settings: self.etrace_config.clone() }, guests)
    }

    /// Returns the raw buffer of CoreSight `trace`, as described by the options.
    pub fn etm_input(&self, trace: PathBuf, guests: &Guests) -> RawInput {
        // The argument parser requires the settings.
        let settings = self.etm_config.clone().unwrap_or_default();
        self.of_unit(trace, RawUnit::Etm { settings }, guests)
    }

    /// Rejects options that can't be combined.
    pub fn check(&self, is_raw: bool, guests: &Guests) -> Result<(), Failure> {
        let bytes = guests.code();
        let describes_raw = !self.code.is_empty()
            || !self.elf.is_empty()
            || !self.host_code.is_empty()
            || !self.host_elf.is_empty()
            || !self.guest_elf.is_empty()
            || !self.filter.is_empty()
            || self.cpu.is_some()
            || self.mtc_freq.is_some()
            || self.nom_freq.is_some()
            || self.cpuid_0x15.is_some();
        if describes_raw && !is_raw {
            return Err(Failure::usage(
                "--code, --elf, --host-code, --host-elf, --guest-elf, --filter, --cpu, --mtc-freq, --nom-freq and \
                 --cpuid-0x15 describe a raw buffer; name it with --pt FILE, --etrace FILE or --etm FILE instead \
                 of a recording",
            ));
        }
        if !bytes.is_empty() && !is_raw {
            return Err(Failure::usage(
                "--guest-code=FILE@ADDRESS describes a raw buffer (--pt FILE); of a recording --guest-code has no \
                 value, and means that the hypervisor's process has the code",
            ));
        }
        let of_guest = !bytes.is_empty() || !self.guest_elf.is_empty();
        let of_both = !self.code.is_empty() || !self.elf.is_empty();
        let only_host = !self.host_code.is_empty() || !self.host_elf.is_empty();
        if of_both && of_guest && only_host {
            return Err(Failure::usage(
                "--code and --elf describe the host or the guest, whichever has no options of its own; here both have",
            ));
        }
        if guests.run_code_of_host() && of_guest {
            return Err(Failure::usage(
                "--guest-code without a value means that guests run the host's code; --guest-code=FILE@ADDRESS and \
                 --guest-elf give other code",
            ));
        }
        Ok(())
    }
}
