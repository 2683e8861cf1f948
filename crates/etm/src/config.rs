//! The settings of a trace unit, which its packets do not contain.

/// The registers that decide how packets are read (ETMv4 "Register descriptions"; the same names in ETE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// TRCCONFIGR: what was switched on.
    pub config: u32,
    /// TRCTRACEIDR: the source's number in frames.
    pub trace_id: u32,
    /// TRCIDR0: capabilities.
    pub id0: u32,
    /// TRCIDR1: the version.
    pub id1: u32,
    /// TRCIDR2: sizes.
    pub id2: u32,
    /// TRCIDR8: the largest number of speculative elements.
    pub id8: u32,
    /// TRCDEVARCH of an ETE; 0 of an ETMv4.
    pub device_architecture: u32,
}

/// How to read the packets of a trace unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Whether it is an ETE, not an ETMv4.
    pub is_ete: bool,
    /// Whether the processor is of M-profile, whose exceptions have numbers of their own: one with 32-bit addresses and without
    /// context IDs (TRCIDR2.IASIZE, CIDSIZE).
    pub is_m_profile: bool,
    /// Whether returns and other indirect branches to the top of the return stack have no address (TRCCONFIGR.RS).
    pub return_stack: bool,
    /// Whether cycles are counted (TRCCONFIGR.CCI).
    pub cycle_counts: bool,
    /// Whether cycle counts contain no commits (TRCIDR0.COMMOPT).
    pub commits_apart: bool,
    /// Whether WFI and WFE have atoms (TRCIDR2.WFXMODE).
    pub waits_have_atoms: bool,
    /// Whether the start of a transaction is a P0 element (TRCIDR0.COMMTRANS is 0, of an ETE).
    pub transactions_are_p0: bool,
    /// Where packets contain the running thread.
    pub thread_ids: ThreadIds,
    /// Bytes of a context ID, if packets contain it.
    pub context_id_bytes: u8,
    /// Bytes of a virtual context, if packets contain it.
    pub virtual_context_bytes: u8,
    /// The largest number of P0 elements that are not committed yet.
    pub speculation_depth: u32,
}

/// Where packets contain the running thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThreadIds {
    /// Nowhere.
    #[default]
    None,
    /// In the context ID.
    ContextId,
    /// In the virtual context.
    VirtualContext,
}

impl Default for Config {
    fn default() -> Config {
        Config::new(&Registers::default())
    }
}

/// The deepest speculation that is followed; known units have less than 256.
const DEEPEST: u32 = 1 << 10;

/// TRCIDR2.IASIZE.
const ADDRESSES_OF_32_BITS: u32 = 0b00100;

/// Bits of TRCCONFIGR.
const CYCLE_COUNTS: u32 = 1 << 4;
const CONTEXT_ID: u32 = 1 << 6;
const VIRTUAL_CONTEXT: u32 = 1 << 7;
const RETURN_STACK: u32 = 1 << 12;
/// VMIDOPT: the virtual context is CONTEXTIDR_EL2, which a kernel at EL2 sets as one at EL1 sets CONTEXTIDR_EL1.
const VIRTUAL_IS_CONTEXT: u32 = 1 << 15;

impl Config {
    /// Reads the registers.
    pub fn new(registers: &Registers) -> Config {
        let Registers { config, id0, id1, id2, id8, .. } = *registers;
        // ETMv4.3 brought WFXMODE; TRCIDR1 has the minor version in bits 7:4, and ETE major version 15.
        let (major, minor) = (id1 >> 8 & 0xf, id1 >> 4 & 0xf);
        let has_wait_mode = major > 4 || minor >= 3;
        let is_ete = registers.device_architecture & 0xfff == 0xa13 && major == 0xf;
        Config {
            is_ete,
            is_m_profile: id2 & 0x1f == ADDRESSES_OF_32_BITS && size(id2 >> 5 & 0x1f) == 0,
            return_stack: config & RETURN_STACK != 0,
            cycle_counts: config & CYCLE_COUNTS != 0,
            commits_apart: id0 >> 29 & 1 == 1 && id0 >> 7 & 1 == 1,
            waits_have_atoms: has_wait_mode && id2 >> 31 == 1,
            transactions_are_p0: is_ete && id0 >> 26 & 1 == 0,
            thread_ids: match (
                config & VIRTUAL_CONTEXT != 0 && config & VIRTUAL_IS_CONTEXT != 0,
                config & CONTEXT_ID != 0,
            ) {
                (true, _) => ThreadIds::VirtualContext,
                (false, true) => ThreadIds::ContextId,
                (false, false) => ThreadIds::None,
            },
            context_id_bytes: size(id2 >> 5 & 0x1f),
            virtual_context_bytes: size(id2 >> 10 & 0x1f),
            speculation_depth: id8.min(DEEPEST),
        }
    }
}

/// Bytes of a field whose size is given by TRCIDR2.
fn size(code: u32) -> u8 {
    match code {
        0b00001 => 1,
        0b00010 => 2,
        0b00100 => 4,
        0b01000 => 8,
        _ => 0,
    }
}
