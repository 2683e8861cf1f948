//! An instruction with its text.

use crate::{Isa, Role, Step, Undecodable, a32, a64, arm, riscv, t32, x86};
use x86::disassembler::Formatter;

/// One instruction.
#[derive(Clone, Copy, Debug)]
pub struct Instruction {
    address: u64,
    step: Step,
    encoding: Encoding,
}

#[derive(Clone, Copy, Debug)]
enum Encoding {
    X86(x86::disassembler::Instruction),
    A64(u32),
    /// Its bytes.
    RiscV(riscv::Set, [u8; riscv::LONGEST]),
    A32(u32),
    T32([u16; 2]),
}

/// Prints instructions: x86 in AT&T syntax, Arm in Arm's, RISC-V without aliases.
pub struct Printer {
    x86: x86::disassembler::GasFormatter,
}

impl Default for Printer {
    fn default() -> Printer {
        Printer { x86: x86::formatter() }
    }
}

impl std::fmt::Debug for Printer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Printer").finish_non_exhaustive()
    }
}

impl Printer {
    /// Appends the text of an instruction.
    pub fn print(&mut self, instruction: &Instruction, text: &mut String) {
        match &instruction.encoding {
            Encoding::X86(decoded) => self.x86.format(decoded, text),
            Encoding::A64(word) => arm::print_a64(*word, &instruction.step, text),
            Encoding::RiscV(set, bytes) => {
                text.push_str(&riscv::show(bytes, instruction.address, *set).unwrap_or_default());
            }
            Encoding::A32(word) => arm::print_a32(*word, &instruction.step, text),
            Encoding::T32(halfwords) => arm::print_t32(*halfwords, &instruction.step, text),
        }
    }
}

impl Instruction {
    pub(crate) fn decode(isa: Isa, bytes: &[u8], address: u64) -> Result<Instruction, Undecodable> {
        let (step, encoding) = match isa {
            Isa::X86(bits) => {
                let decoded = x86::decode(bits, bytes, address)?;
                (x86::step(&decoded), Encoding::X86(decoded))
            }
            Isa::A64 => (a64::decode(bytes, address)?, Encoding::A64(a64::word(bytes)?)),
            Isa::RiscV(set) => {
                let step = riscv::step(bytes, address, set)?;
                let mut own = [0; riscv::LONGEST];
                let length = usize::from(step.length);
                own[..length].copy_from_slice(&bytes[..length]);
                (step, Encoding::RiscV(set, own))
            }
            Isa::A32 => (a32::decode(bytes, address)?, Encoding::A32(a64::word(bytes)?)),
            Isa::T32 => (t32::decode(bytes, address)?, Encoding::T32(t32::halfwords(bytes)?)),
        };
        Ok(Instruction { address, step, encoding })
    }

    /// Returns its address.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Returns the address after it.
    pub fn end(&self) -> u64 {
        self.address.wrapping_add(self.step.length.into())
    }

    /// Returns what the flow needs to know of it.
    pub fn step(&self) -> Step {
        self.step
    }

    /// Returns the instruction set of its direct target: BLX of A32 and T32 changes it.
    pub fn target_isa(&self) -> Option<Isa> {
        match self.encoding {
            Encoding::A32(word) => Some(if a32::calls_other_state(word) { Isa::T32 } else { Isa::A32 }),
            Encoding::T32(halfwords) => {
                Some(if t32::calls_other_state(halfwords) { Isa::A32 } else { Isa::T32 })
            }
            Encoding::X86(_) | Encoding::A64(_) | Encoding::RiscV(..) => None,
        }
    }

    /// Returns what it does beside the flow.
    pub fn role(&self) -> Role {
        match &self.encoding {
            Encoding::X86(decoded) => x86::role(decoded),
            Encoding::A64(_) | Encoding::A32(_) | Encoding::T32(_) | Encoding::RiscV(..) => Role::Other,
        }
    }

    /// Returns its mnemonic in lower case; of x86 without the size of operands.
    pub fn mnemonic(&self) -> String {
        match &self.encoding {
            Encoding::X86(decoded) => x86::lower(decoded.mnemonic()),
            _ => self.written_mnemonic(),
        }
    }

    /// Returns its mnemonic as it is printed: of x86 with the size, as in `incq`.
    pub fn written_mnemonic(&self) -> String {
        let mut text = String::new();
        match &self.encoding {
            Encoding::X86(decoded) => {
                x86::disassembler::GasFormatter::new().format_mnemonic(decoded, &mut text);
                text.split_whitespace().last().unwrap_or_default().to_owned()
            }
            _ => {
                Printer::default().print(self, &mut text);
                text.split_whitespace().next().unwrap_or_default().to_owned()
            }
        }
    }

    /// Returns its operands as they are printed.
    pub fn operands(&self) -> Vec<String> {
        let mut text = String::new();
        match &self.encoding {
            Encoding::X86(decoded) => {
                let mut formatter = x86::disassembler::GasFormatter::new();
                let operand = |index| {
                    let mut text = String::new();
                    formatter.format_operand(decoded, &mut text, index).ok().map(|()| text)
                };
                let count = x86::disassembler::GasFormatter::new().operand_count(decoded);
                (0..count).filter_map(operand).collect()
            }
            _ => {
                Printer::default().print(self, &mut text);
                let (_, operands) = text.split_once(char::is_whitespace).unwrap_or_default();
                arm::split_operands(operands).map(|operand| operand.trim().to_owned()).collect()
            }
        }
    }

    /// Returns whether it has the prefix REP or REPE of x86.
    pub fn has_rep_prefix(&self) -> bool {
        matches!(&self.encoding, Encoding::X86(decoded) if decoded.has_rep_prefix())
    }

    /// Returns whether it has the prefix REPNE of x86.
    pub fn has_repne_prefix(&self) -> bool {
        matches!(&self.encoding, Encoding::X86(decoded) if decoded.has_repne_prefix())
    }

    /// Returns whether it has the prefix LOCK of x86.
    pub fn has_lock_prefix(&self) -> bool {
        matches!(&self.encoding, Encoding::X86(decoded) if decoded.has_lock_prefix())
    }
}
