//! Identifies the inputs of an experiment.

use super::{Experiment, part::TraceOrigin};
use crate::{history::each_file, input::Input};

impl Experiment {
    /// Returns a checksum that identifies the inputs, independent of their paths: of what their traces contain, and of
    /// the size and the first 64 KiB of each file. The traces alone do not identify a file: they leave out what a
    /// recording has besides its streams. Later bytes are not read, so a change of those is noticed by its size only.
    pub fn identity(&self) -> String {
        let mut files = Vec::new();
        for path in self.inputs().iter().map(Input::path) {
            let known = each_file(path, &mut |_, metadata, checksum| {
                files.push(Some((metadata.len(), checksum)));
                Ok(())
            });
            // Standard input, or a file that was deleted after it was opened.
            files.extend(known.is_err().then_some(None));
        }
        let origins = self.with(TraceOrigin::of_all);
        let bytes = postcard::to_allocvec(&(origins, files)).expect("memory takes what is written to it");
        format!("{:08x}", crc32fast::hash(&bytes))
    }
}
