//! Instruction sets: what a decoder of traces needs to know of an instruction, and its text.

pub mod riscv;
