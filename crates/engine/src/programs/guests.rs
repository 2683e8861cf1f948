//! The code of virtual machines: the guests, and the files of their kernels.
//!
//! ```text
//! raw buffer:  --code (host and guest) or --guest-code ─────────────► mappings of the sideband
//! perf.data:   --guestmount DIR ─► DIR/PID/proc/{kallsyms,kcore} ───► the kernel of the guest that PID runs
//!              --guestkallsyms, --guestvmlinux ─────────────────────► the kernel of any other guest
//!              --guest-code ────────────────────────────────────────► what the hypervisor's process maps
//! ```
//!
//! Names and meaning are those of perf (perf-script(1), perf-kvm(1)). A recording doesn't contain which process runs in
//! a guest's user space, so user space of guests is a gap.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use hodo_code::{AddressSpace, Content, Origin};

use crate::{
    files::Files,
    flow::info::Source,
    programs::{
        kernel::{Kernel, KernelFiles},
        modules::{Module, joined},
    },
};

/// The location of guests' code, as given by the user.
#[derive(Clone, Debug, Default)]
pub struct GuestFiles {
    /// Whether guests run the code of the hypervisor's process at the same addresses.
    pub in_host: bool,
    /// A folder with the root of each guest, in a subfolder named by the pid of the process that runs it.
    pub mount: Option<PathBuf>,
    /// A copy of a guest's `/proc/kallsyms`.
    pub kallsyms: Option<PathBuf>,
    /// A guest's kernel as linked.
    pub vmlinux: Option<PathBuf>,
}

/// The kernel of a guest.
#[derive(Debug)]
pub(crate) struct GuestKernel<'f> {
    /// The process that runs the guest; any if `None`.
    pub(crate) pid: Option<u32>,
    /// Index of its module.
    pub(crate) module: u32,
    /// Its code by address.
    code: Vec<(u64, &'f [u8])>,
}

/// A guest's kernel that was opened.
pub(crate) struct OpenedKernel<'f> {
    pub(crate) kernel: GuestKernel<'f>,
    pub(crate) module: Module<'f>,
    /// The functions of the module.
    pub(crate) symbols: hodo_symbols::Module,
}

/// The kernel's half of the addresses.
const KERNEL: Range<u64> = 1 << 63..u64::MAX;

impl<'f> GuestKernel<'f> {
    /// Opens the kernels of all guests, those with a pid first. `first_module` is the index of the first one's module.
    pub(crate) fn open(files: &'f Files, guests: &GuestFiles, first_module: u32) -> Vec<OpenedKernel<'f>> {
        let mounted = guests.mount.iter().flat_map(|folder| machines(folder));
        let named = KernelFiles {
            kallsyms: guests.kallsyms.clone(),
            vmlinux: guests.vmlinux.clone(),
            ..KernelFiles::default()
        };
        let other = (named.kallsyms.is_some() || named.vmlinux.is_some()).then_some((None, named));
        let all = mounted.map(|(pid, kernel)| (Some(pid), kernel)).chain(other);
        let opened = all.zip(first_module..).map(|((pid, named), index)| {
            let (kernel, image) = Kernel::of_guest(files, &named);
            let name = match pid {
                Some(pid) => format!("[guest.kernel.kallsyms.{pid}]"),
                None => "[guest.kernel.kallsyms]".to_owned(),
            };
            let code: Vec<(u64, &[u8])> = kernel.code(KERNEL).collect();
            let ranges =
                joined(code.iter().map(|&(start, bytes)| start..start + bytes.len() as u64).collect());
            let source = if code.is_empty() { Source::Missing } else { Source::File };
            let symbols = kernel.symbols(&name, &ranges, &image);
            let mut module = Module::new(&name, source, kernel.problem());
            module.ranges = ranges;
            OpenedKernel { kernel: GuestKernel { pid, module: index, code }, module, symbols }
        });
        opened.collect()
    }

    /// Returns its address space.
    pub(crate) fn space(&self) -> AddressSpace<'f> {
        let mut space = AddressSpace::new();
        let since_tick = 0;
        for &(address, bytes) in &self.code {
            let origin = Origin { module: self.module, offset: address };
            space.map(address..address + bytes.len() as u64, Content { bytes, origin }, since_tick);
        }
        space
    }
}

/// Returns the guests in a folder, sorted by pid, and the files of their kernels.
fn machines(folder: &Path) -> Vec<(u32, KernelFiles)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut machines: Vec<(u32, KernelFiles)> = entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let file = |name: &str| Some(entry.path().join("proc").join(name)).filter(|path| path.exists());
            Some((pid, KernelFiles { kallsyms: file("kallsyms"), kcore: file("kcore"), vmlinux: None }))
        })
        .collect();
    machines.sort_unstable_by_key(|(pid, _)| *pid);
    machines
}
