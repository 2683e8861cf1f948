//! Mounts and modules.

use std::{
    fs::{self, File, Permissions},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
};

use crate::system::{Error, bring_up, load_module, mount, mount_plainly};

/// Mount point of the command's root.
const ROOT: &str = "/root";
/// Mount options of 9p. Messages are large, as each round trip leaves the emulated processor.
const OPTIONS_9P: &str = "trans=virtio,version=9p2000.L,msize=512000";

pub(crate) fn mount_basics() -> Result<(), Error> {
    mount_plainly("proc", "/proc", "proc")?;
    mount_plainly("dev", "/dev", "devtmpfs")?;
    mount_plainly("sys", "/sys", "sysfs")
}

/// Loads the modules of the initramfs in order of their dependencies.
pub(crate) fn load_modules() -> Result<(), Error> {
    let order = fs::read_to_string("/modules/order").map_err(Error::of("/modules/order"))?;
    for name in order.lines() {
        let path = format!("/modules/{name}");
        let loaded = File::open(&path).and_then(|file| load_module(&file));
        loaded.map_err(Error::of(format!("module {name}")))?;
    }
    Ok(())
}

pub(crate) fn mount_spool(folder: &str) -> Result<(), Error> {
    mount("spool", folder, "9p", 0, &format!("{OPTIONS_9P},cache=none"))
}

/// Mounts the host's root below a writable layer, and returns the mount point. If the spool says so, the files of another system
/// hide those of the host.
pub(crate) fn mount_root(spool: &str) -> Result<String, Error> {
    let options = format!("{OPTIONS_9P},cache=loose,access=any");
    mount("root", "/host", "9p", libc::MS_RDONLY, &options)?;
    let mut lower = "/host";
    if fs::exists(format!("{spool}/sysroot")).unwrap_or(false) {
        mount("sysroot", "/sysroot", "9p", libc::MS_RDONLY, &options)?;
        lower = "/sysroot:/host";
    }
    mount_plainly("layer", "/layer", "tmpfs")?;
    for folder in ["/layer/upper", "/layer/work"] {
        fs::create_dir_all(folder).map_err(Error::of(folder))?;
    }
    let layers = format!("lowerdir={lower},upperdir=/layer/upper,workdir=/layer/work");
    mount("root", ROOT, "overlay", 0, &layers)?;
    for (kind, folder) in [("proc", "proc"), ("sysfs", "sys"), ("devtmpfs", "dev"), ("tmpfs", "run")] {
        mount_plainly(kind, &format!("{ROOT}/{folder}"), kind)?;
    }
    for (kind, folder) in [("tmpfs", "dev/shm"), ("devpts", "dev/pts")] {
        mount_plainly(kind, &format!("{ROOT}/{folder}"), kind)?;
    }
    // The command runs without its user's further groups, so it is not in the group that may use KVM.
    let kvm = format!("{ROOT}/dev/kvm");
    if fs::exists(&kvm).unwrap_or(false) {
        fs::set_permissions(&kvm, Permissions::from_mode(0o666)).map_err(Error::of(kvm))?;
    }
    // Some kernels lack it, and few commands need it.
    _ = mount_plainly("tracefs", &format!("{ROOT}/sys/kernel/tracing"), "tracefs");
    Ok(ROOT.to_owned())
}

/// Brings up the network interface of the machine itself, so that its programs reach each other by 127.0.0.1 and ::1.
pub(crate) fn bring_up_loopback() -> Result<(), Error> {
    match bring_up("lo") {
        // A kernel without network.
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(()),
        other => other.map_err(Error::of("the interface lo")),
    }
}

/// Copies a file of a kernel file system, whose size is unknown. A read gives one page of most of them, so the pages are
/// gathered: each write to the spool leaves the emulated processor.
pub(crate) fn copy(from: &str, to: &str) -> Result<(), Error> {
    let copied = (|| {
        let (mut source, mut target) = (File::open(from)?, File::create(to)?);
        let mut buffer = vec![0; 1 << 18];
        let mut filled = 0;
        loop {
            let count = source.read(&mut buffer[filled..])?;
            filled += count;
            if count == 0 || filled + 8192 > buffer.len() {
                target.write_all(&buffer[..filled])?;
                filled = 0;
            }
            if count == 0 {
                return io::Result::Ok(());
            }
        }
    })();
    copied.map_err(Error::of(format!("copying {from}")))
}
