//! Decodes a case with Intel's libipt.

use std::{fs, path::Path, process::Command};

use hodo_cases::{Assembly, Case, Trace};

use crate::{Outcome, without_repetitions};

/// The lines that libipt decodes; if the harness fails, what it says, which then differs.
pub(crate) fn lines(
    libipt: &Path,
    case: &Case<'_>,
    assembly: &Assembly,
    trace: &Trace<'_>,
) -> Outcome<Vec<String>> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(libipt);
    command.args(["--events", "--limit", "10000"]);
    if let Some(cpu) = case.config.cpu {
        command.args(["--cpu", &format!("{}/{}/{}", cpu.family, cpu.model, cpu.stepping)]);
    }
    for (index, section) in assembly.sections.iter().enumerate() {
        let path = folder.path().join(format!("code-{index}"));
        fs::write(&path, &section.bytes)?;
        let (size, address) = (section.bytes.len(), section.address);
        command.args(["--raw", &format!("{}:0:{size}@{address:#x}", path.display())]);
    }
    let path = folder.path().join("trace");
    fs::write(&path, &trace.bytes)?;
    let output = command.arg(path).output()?;
    // 1: the trace has errors, which are printed as lines.
    if !matches!(output.status.code(), Some(0 | 1)) {
        return Ok(vec![String::from_utf8_lossy(&output.stderr).trim().to_owned()]);
    }
    let text = String::from_utf8(output.stdout)?;
    let lines = text.lines().map(|line| match line.strip_prefix("# ") {
        Some("overflow") => "gap",
        Some(event) if event.starts_with("error") => "gap",
        Some(event) => event,
        None => line,
    });
    Ok(without_repetitions(lines))
}
