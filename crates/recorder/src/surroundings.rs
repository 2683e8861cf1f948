//! What a program finds around it, where it must be the same each time.

use std::{
    ffi::OsString,
    fs::File,
    path::PathBuf,
    process::{Command, Stdio},
};

use crate::Error;

/// A folder, an environment and a standard input of its own. What the program writes to its standard output is thrown away.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Variables that are added to the recorder's environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs; `None` for the recorder's folder.
    pub folder: Option<PathBuf>,
    /// The file that is its standard input; `None` for an empty one.
    pub input: Option<PathBuf>,
    /// It gets the same addresses each time.
    pub fixed_addresses: bool,
}

impl Surroundings {
    /// Gives them to a command.
    ///
    /// # Errors
    /// The input can't be opened.
    pub(crate) fn give_to(&self, command: &mut Command) -> Result<(), Error> {
        command.envs(self.environment.iter().cloned()).stdout(Stdio::null());
        if let Some(folder) = &self.folder {
            command.current_dir(folder);
        }
        command.stdin(match &self.input {
            Some(path) => Stdio::from(File::open(path).map_err(Error::file(path))?),
            None => Stdio::null(),
        });
        if self.fixed_addresses {
            hodo_native::fix_addresses(command);
        }
        Ok(())
    }
}
