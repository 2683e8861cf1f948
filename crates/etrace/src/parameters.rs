//! The parameters of a trace encoder, which its stream does not contain.
//!
//! Source: Efficient Trace for RISC-V, version 2.0, "Discovery of encoder parameter values".

use hodo_isa::{
    Isa,
    riscv::{Set, Shared, Width},
};
use serde::Deserialize;

/// The parameters of an encoder, by the names of the specification without their ending `_p`. A field of zero bits is
/// absent from packets.
///
/// They are the table `[parameters]` of a [`Configuration`](crate::Configuration); what is missing has the default value.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Width of addresses, 3 to 64 bits.
    pub iaddress_width: u8,
    /// Low bits of addresses that are not sent: 1 with compressed instructions, else 2.
    pub iaddress_lsb: u8,
    /// Width of privilege levels, at most 8 bits.
    pub privilege_width: u8,
    /// Width of the causes of traps, at most 63 bits.
    pub ecause_width: u8,
    /// Width of the context, at most 64 bits; 0 for none (`nocontext`).
    pub context_width: u8,
    /// Width of times, at most 64 bits; 0 for none (`notime`).
    pub time_width: u8,
    /// Width of the subformat of format 0. It may be 0 if the encoder has only one of its extensions.
    pub f0s_width: u8,
    /// The jump target cache has 2 to this power entries; at most 16.
    pub cache_size: u8,
    /// The branch predictor has 2 to this power entries; at most 16.
    pub bpred_size: u8,
    /// The stack of return addresses has 2 to this power entries; 0 for none, at most 12.
    pub return_stack_size: u8,
    /// The counter of nested calls has this many bits; 0 for none, at most 12.
    pub call_counter_size: u8,
    /// Whether jumps whose target the instruction before loads are inferred, where no option of the support packet says
    /// so.
    pub sijump: bool,
    /// Width of the mode of the encoder in support packets, at most 8 bits.
    pub encoder_mode_width: u8,
    /// The order of the options in support packets, which each implementation chooses.
    pub options: Layout,
    /// Width of the hart's registers: 32 or 64.
    pub xlen: Xlen,
    /// Whether the hart has Zcmp or Zcmt, whose encodings are loads and stores of doubles elsewhere.
    pub zcmp: bool,
}

/// Width of a hart's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "u8")]
pub struct Xlen(pub Width);

impl TryFrom<u8> for Xlen {
    type Error = String;

    fn try_from(bits: u8) -> Result<Xlen, String> {
        match bits {
            32 => Ok(Xlen(Width::Bits32)),
            64 => Ok(Xlen(Width::Bits64)),
            _ => Err(format!("xlen is 32 or 64, not {bits}")),
        }
    }
}

/// The option bits of support packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// Of the reference encoder: implicit return, implicit exception, full address, jump target cache, branch
    /// prediction; then four options of the data trace.
    Reference,
    /// Of the encoder of the PULP platform: jump target cache, branch prediction, implicit return, sijump, implicit
    /// exception, full address, delta address; no data trace.
    Pulp,
}

impl Default for Parameters {
    /// The parameters of the reference flow for RV64 with compressed instructions.
    fn default() -> Parameters {
        Parameters {
            iaddress_width: 64,
            iaddress_lsb: 1,
            privilege_width: 2,
            ecause_width: 5,
            context_width: 0,
            time_width: 0,
            f0s_width: 0,
            cache_size: 0,
            bpred_size: 0,
            return_stack_size: 0,
            call_counter_size: 0,
            sijump: false,
            encoder_mode_width: 1,
            options: Layout::Reference,
            xlen: Xlen(Width::Bits64),
            zcmp: false,
        }
    }
}

/// Why parameters are not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// The file is no TOML, or has other names or types.
    #[error("{0}")]
    File(String),
    /// A value is out of its range.
    #[error("{name} is {value}, but must be {low} to {high}")]
    Range {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: u8,
        /// The least value.
        low: u8,
        /// The greatest value.
        high: u8,
    },
    /// Both a stack of return addresses and a counter of calls.
    #[error("return_stack_size and call_counter_size exclude each other")]
    StackAndCounter,
    /// Two extensions of format 0 without a subformat.
    #[error("f0s_width must not be 0 with both cache_size and bpred_size")]
    Subformat,
}

impl Parameters {
    /// Checks all values.
    ///
    /// # Errors
    /// The first one that is out of range.
    pub fn check(&self) -> Result<(), ParameterError> {
        let ranges = [
            ("iaddress_lsb", self.iaddress_lsb, 1, 2),
            ("iaddress_width", self.iaddress_width, 3, 64),
            ("privilege_width", self.privilege_width, 0, 8),
            ("ecause_width", self.ecause_width, 0, 63),
            ("context_width", self.context_width, 0, 64),
            ("time_width", self.time_width, 0, 64),
            ("f0s_width", self.f0s_width, 0, 8),
            ("cache_size", self.cache_size, 0, 16),
            ("bpred_size", self.bpred_size, 0, 16),
            ("return_stack_size", self.return_stack_size, 0, 12),
            ("call_counter_size", self.call_counter_size, 0, 12),
            ("encoder_mode_width", self.encoder_mode_width, 0, 8),
        ];
        for (name, value, low, high) in ranges {
            if value < low || value > high {
                return Err(ParameterError::Range { name, value, low, high });
            }
        }
        if self.return_stack_size > 0 && self.call_counter_size > 0 {
            return Err(ParameterError::StackAndCounter);
        }
        if self.cache_size > 0 && self.bpred_size > 0 && self.f0s_width == 0 {
            return Err(ParameterError::Subformat);
        }
        Ok(())
    }

    /// Returns the hart's instruction set.
    pub fn isa(&self) -> Isa {
        Isa::RiscV(self.set())
    }

    /// Returns the hart's instruction set.
    pub fn set(&self) -> Set {
        let shared = if self.zcmp { Shared::PushesAndTables } else { Shared::Doubles };
        Set { width: self.xlen.0, shared }
    }

    /// Width of the address fields of packets.
    pub(crate) fn address_bits(&self) -> u8 {
        self.iaddress_width - self.iaddress_lsb
    }

    /// Width of `irdepth`.
    pub(crate) fn depth_bits(&self) -> u8 {
        match self.return_stack_size {
            0 => self.call_counter_size,
            stack => stack + 1,
        }
    }

    /// The greatest number of calls that are remembered.
    pub(crate) fn deepest(&self) -> usize {
        match self.return_stack_size {
            // The counter must fit its field.
            0 => (1 << self.call_counter_size) - 1,
            stack => 1 << stack,
        }
    }

    /// Returns the address for the value of a full address field.
    pub(crate) fn address(&self, field: u64) -> u64 {
        let unused = 64 - u32::from(self.iaddress_width);
        let shifted = field << self.iaddress_lsb << unused;
        match self.xlen.0 {
            Width::Bits32 => shifted >> unused,
            // Addresses narrower than registers are sign-extended, as virtual addresses are.
            Width::Bits64 => (shifted as i64 >> unused) as u64,
        }
    }

    /// Returns the value of a full address field.
    pub(crate) fn field(&self, address: u64) -> u64 {
        address >> self.iaddress_lsb & mask(self.address_bits())
    }
}

/// The low `bits` set.
pub(crate) const fn mask(bits: u8) -> u64 {
    match bits {
        0 => 0,
        bits => u64::MAX >> (64 - bits),
    }
}
