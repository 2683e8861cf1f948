//! `repack FORM IN OUT`: writes a perf.data in another container. FORM is `file`, `pipe`, `folder`, `compressed`,
//! `cpus` or `samples`.

use std::{env, fs, io, path::Path, process::ExitCode};

use hodo_repack::{Recorded, compressed, file, folder, in_samples, per_cpu, pipe};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [form, from, to] = &arguments[..] else {
        eprintln!("usage: repack FORM IN OUT");
        return ExitCode::from(2);
    };
    match repack(form, Path::new(from), Path::new(to)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("repack: {error}");
            ExitCode::FAILURE
        }
    }
}

fn repack(form: &str, from: &Path, to: &Path) -> io::Result<()> {
    let recorded = Recorded::read(&fs::read(from)?);
    match form {
        "file" => fs::write(to, file(&recorded)),
        "pipe" => fs::write(to, pipe(&recorded)),
        "compressed" => fs::write(to, compressed(&recorded)),
        "cpus" => fs::write(to, file(&per_cpu(&recorded))),
        "samples" => fs::write(to, file(&in_samples(&recorded))),
        "folder" => {
            fs::create_dir_all(to)?;
            folder(&recorded).iter().try_for_each(|(name, bytes)| fs::write(to.join(name), bytes))
        }
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("no form `{form}`"))),
    }
}
