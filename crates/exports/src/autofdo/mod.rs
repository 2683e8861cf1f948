//! AutoFDO's text profile: what [`llvm`](crate::llvm) has, for `create_llvm_prof`.
//!
//! Source: `TextSampleReaderWriter` of AutoFDO. Between ranges and branches it has counts of single addresses: none here.

use std::io;

use hodo_model::Loss;

use crate::{
    BranchProfile, Content, Export, Output,
    llvm::{write_runs, write_taken},
};

pub(crate) const EXPORT: Export = Export {
    name: "autofdo",
    help: "the same for create_llvm_prof of AutoFDO",
    content: Content::Branches(write),
};

fn write(profile: &BranchProfile, _: &[Loss], out: Output<'_>) -> io::Result<()> {
    write_runs(profile, out)?;
    writeln!(out, "0")?;
    write_taken(profile, out)?;
    out.flush()
}
