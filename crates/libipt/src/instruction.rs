//! Instructions: their length, and what they mean for the flow.

use hodo_isa::x86::disassembler::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction as Decoded, Mnemonic, OpKind, Register,
};

use crate::{
    Error, abi,
    event::Mode,
    length::length,
    memory::{Image, Space},
};

/// `pt_insn_class`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Class {
    #[default]
    Error = 0,
    Other = 1,
    Call = 2,
    Return = 3,
    Jump = 4,
    ConditionalJump = 5,
    FarCall = 6,
    FarReturn = 7,
    FarJump = 8,
    PtWrite = 9,
}

/// What matters beyond the class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Special {
    #[default]
    None,
    /// Changes the privilege level: INT n, IRET, SYSCALL and the like.
    ChangesLevel,
    /// MOV to CR3.
    WritesCr3,
    /// VMLAUNCH or VMRESUME.
    EntersGuest,
    /// VMPTRLD. libipt looks at no prefix, so VMCLEAR and VMXON count too.
    LoadsVmcs,
}

/// An instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Instruction {
    pub(crate) ip: u64,
    pub(crate) mode: Mode,
    pub(crate) class: Class,
    pub(crate) special: Special,
    /// The distance from the next instruction to the target, of a direct near branch.
    pub(crate) displacement: Option<i64>,
    pub(crate) raw: [u8; abi::MAX_INSTRUCTION],
    pub(crate) size: u8,
    pub(crate) isid: i32,
    /// Whether it continues in another section.
    pub(crate) is_truncated: bool,
}

impl Instruction {
    /// Creates one that is not read yet.
    pub(crate) fn at(ip: u64, mode: Mode) -> Instruction {
        Instruction { ip, mode, ..Instruction::default() }
    }

    /// Decodes the first `available` bytes of `raw`.
    pub(crate) fn decode(&mut self, available: usize) -> Result<(), Error> {
        let bits = match self.mode {
            Mode::Bits64 => 64,
            Mode::Bits32 => 32,
            Mode::Bits16 => 16,
            Mode::Unknown => return Err(Error::BAD_INSTRUCTION),
        };
        let bytes = &self.raw[..available];
        let mut decoder = Decoder::with_ip(bits, bytes, self.ip, DecoderOptions::NO_INVALID_CHECK);
        let decoded = decoder.decode();
        if decoded.is_invalid() {
            self.size = length(self.mode, bytes)? as u8;
            self.class = Class::Other;
            return Ok(());
        }
        self.size = decoded.len() as u8;
        (self.class, self.special) = classify(&decoded);
        self.displacement = displacement(&decoded);
        Ok(())
    }

    /// Reads and decodes it from an image. It may reach over several sections.
    pub(crate) fn read(&mut self, image: &Image, space: &Space) -> Result<(), Error> {
        let (mut available, isid) = image.read(space, self.ip, &mut self.raw)?;
        self.isid = isid;
        while let Err(error) = self.decode(available) {
            if available >= self.raw.len() {
                return Err(error);
            }
            let next = self.ip.wrapping_add(available as u64);
            let more = match image.read(space, next, &mut self.raw[available..]) {
                Ok((0, _)) => return Err(Error::INTERNAL),
                Ok((more, _)) => more,
                Err(Error::NO_MAP) => return Err(Error::BAD_INSTRUCTION),
                Err(error) => return Err(error),
            };
            available += more;
            self.is_truncated = true;
        }
        Ok(())
    }

    /// Returns the address after it.
    pub(crate) fn end(&self) -> u64 {
        self.ip.wrapping_add(self.size.into())
    }

    /// Returns the next address if no trace is needed for it, else `BAD_QUERY`.
    pub(crate) fn next_ip(&self) -> Result<u64, Error> {
        match (self.class, self.displacement) {
            (Class::Other | Class::PtWrite, _) => Ok(self.end()),
            (Class::Call | Class::Jump, Some(displacement)) => {
                Ok(self.end().wrapping_add_signed(displacement))
            }
            (Class::Error, _) => Err(Error::BAD_INSTRUCTION),
            _ => Err(Error::BAD_QUERY),
        }
    }

    /// Returns the address to remember for a return, if it is a call. A call of the next instruction only reads the IP.
    pub(crate) fn return_address(&self) -> Option<u64> {
        (self.class == Class::Call && self.displacement != Some(0)).then(|| self.end())
    }

    pub(crate) fn is_far(&self) -> bool {
        matches!(self.class, Class::FarCall | Class::FarReturn | Class::FarJump)
    }

    pub(crate) fn is_branch(&self) -> bool {
        !matches!(self.class, Class::Other | Class::PtWrite | Class::Error)
    }

    pub(crate) fn changes_level(&self) -> bool {
        self.special == Special::ChangesLevel
    }

    pub(crate) fn writes_cr3(&self) -> bool {
        self.special == Special::WritesCr3
    }

    pub(crate) fn enters_guest(&self) -> bool {
        self.special == Special::EntersGuest
    }

    /// Whether a change of the address space may bind to it.
    pub(crate) fn binds_to_pip(&self) -> bool {
        self.is_far() || matches!(self.special, Special::WritesCr3 | Special::EntersGuest)
    }

    /// Whether a change of the VMCS may bind to it.
    pub(crate) fn binds_to_vmcs(&self) -> bool {
        self.is_far() || matches!(self.special, Special::LoadsVmcs | Special::EntersGuest)
    }
}

/// Returns whether straight-line code and direct jumps lead from one address to another.
pub(crate) fn leads_to(
    from: u64,
    to: u64,
    mode: Mode,
    image: &Image,
    space: &Space,
    steps: usize,
) -> Result<bool, Error> {
    let mut ip = from;
    for _ in 0..steps {
        if ip == to {
            return Ok(true);
        }
        let mut instruction = Instruction::at(ip, mode);
        instruction.read(image, space)?;
        ip = instruction.next_ip()?;
    }
    Ok(ip == to)
}

fn classify(decoded: &Decoded) -> (Class, Special) {
    use Mnemonic::*;
    let level = Special::ChangesLevel;
    match decoded.mnemonic() {
        Call if decoded.is_call_far() || decoded.is_call_far_indirect() => (Class::FarCall, Special::None),
        Call => (Class::Call, Special::None),
        Jmp if decoded.is_jmp_far() || decoded.is_jmp_far_indirect() => (Class::FarJump, Special::None),
        Jmp if decoded.code() != Code::Jmpe_rm16 => (Class::Jump, Special::None),
        Ret => (Class::Return, Special::None),
        Retf => (Class::FarReturn, Special::None),
        Int | Int1 | Int3 | Into | Syscall | Sysenter => (Class::FarCall, level),
        Iret | Iretd | Iretq | Sysret | Sysretq | Sysexit | Sysexitq => (Class::FarReturn, level),
        Vmcall => (Class::FarCall, Special::None),
        Uiret => (Class::FarReturn, Special::None),
        Vmlaunch | Vmresume => (Class::FarReturn, Special::EntersGuest),
        Ptwrite => (Class::PtWrite, Special::None),
        Vmptrld | Vmclear | Vmxon => (Class::Other, Special::LoadsVmcs),
        Mov if decoded.op0_register() == Register::CR3 => (Class::Other, Special::WritesCr3),
        _ if decoded.flow_control() == FlowControl::ConditionalBranch => {
            (Class::ConditionalJump, Special::None)
        }
        _ => (Class::Other, Special::None),
    }
}

/// Returns the displacement of a direct near branch. libipt adds it to the whole address, in 16-bit code too.
fn displacement(decoded: &Decoded) -> Option<i64> {
    let distance = decoded.near_branch_target().wrapping_sub(decoded.next_ip());
    let direct = matches!(decoded.mnemonic(), Mnemonic::Jmp | Mnemonic::Call)
        || decoded.flow_control() == FlowControl::ConditionalBranch;
    match decoded.op0_kind() {
        _ if !direct => None,
        OpKind::NearBranch16 => Some((distance as i16).into()),
        OpKind::NearBranch32 => Some((distance as i32).into()),
        OpKind::NearBranch64 => Some(distance as i64),
        _ => None,
    }
}
