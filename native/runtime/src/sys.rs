//! System calls of the runtime itself.

#![allow(unsafe_code)]

use core::arch::asm;

/// Numbers of system calls.
pub mod nr {
    #![allow(missing_docs)]
    pub const WRITE: u64 = 1;
    pub const MMAP: u64 = 9;
    pub const MPROTECT: u64 = 10;
    pub const MUNMAP: u64 = 11;
    pub const BRK: u64 = 12;
    pub const RT_SIGACTION: u64 = 13;
    pub const RT_SIGPROCMASK: u64 = 14;
    pub const RT_SIGRETURN: u64 = 15;
    pub const SCHED_YIELD: u64 = 24;
    pub const MREMAP: u64 = 25;
    pub const MADVISE: u64 = 28;
    pub const SHMAT: u64 = 30;
    pub const GETPID: u64 = 39;
    pub const CLONE: u64 = 56;
    pub const FORK: u64 = 57;
    pub const VFORK: u64 = 58;
    pub const EXECVE: u64 = 59;
    pub const EXIT: u64 = 60;
    pub const KILL: u64 = 62;
    pub const GETRLIMIT: u64 = 97;
    pub const SETRLIMIT: u64 = 160;
    pub const PRLIMIT64: u64 = 302;
    pub const READLINK: u64 = 89;
    pub const SIGALTSTACK: u64 = 131;
    pub const PRCTL: u64 = 157;
    pub const ARCH_PRCTL: u64 = 158;
    pub const GETTID: u64 = 186;
    pub const FUTEX: u64 = 202;
    pub const EXIT_GROUP: u64 = 231;
    pub const NEWFSTATAT: u64 = 262;
    pub const FACCESSAT: u64 = 269;
    pub const TGKILL: u64 = 234;
    pub const RT_TGSIGQUEUEINFO: u64 = 297;
    pub const SECCOMP: u64 = 317;
    pub const EXECVEAT: u64 = 322;
    pub const RSEQ: u64 = 334;
    pub const RT_SIGSUSPEND: u64 = 130;
    pub const PSELECT6: u64 = 270;
    pub const PPOLL: u64 = 271;
    pub const EPOLL_PWAIT: u64 = 281;
    pub const IO_PGETEVENTS: u64 = 333;
    pub const EPOLL_PWAIT2: u64 = 441;
    pub const CLONE3: u64 = 435;
    pub const PKEY_MPROTECT: u64 = 329;
}

/// Error numbers, negative as the kernel returns them.
pub mod errno {
    #![allow(missing_docs)]
    pub const EPERM: u64 = -1i64 as u64;
    pub const EINTR: u64 = -4i64 as u64;
    pub const ENOMEM: u64 = -12i64 as u64;
    pub const EEXIST: u64 = -17i64 as u64;
    pub const EAGAIN: u64 = -11i64 as u64;
    pub const EFAULT: u64 = -14i64 as u64;
    pub const EINVAL: u64 = -22i64 as u64;
    pub const ENOSYS: u64 = -38i64 as u64;
}

/// Whether a result of a system call is an error.
pub fn failed(result: u64) -> bool {
    result > -4096i64 as u64
}

/// Makes a system call.
pub fn call(number: u64, arguments: [u64; 6]) -> u64 {
    let [a, b, c, d, e, f] = arguments;
    let result;
    // SAFETY: the kernel checks the arguments; the callers pass only memory of the runtime, or of the program where the
    // program asked for it.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c,
             in("r10") d, in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// Makes a system call with up to three arguments.
pub fn call3(number: u64, a: u64, b: u64, c: u64) -> u64 {
    call(number, [a, b, c, 0, 0, 0])
}

/// Maps zeroed memory of this process at an address where nothing is mapped.
pub fn map(address: u64, length: u64, protection: u64) -> bool {
    try_map(address, length, protection) == address
}

/// As [`map`]; returns the kernel's result.
pub fn try_map(address: u64, length: u64, protection: u64) -> u64 {
    // MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE
    let flags = 0x2 | 0x20 | 0x4000 | 0x10_0000;
    call(nr::MMAP, [address, length, protection, flags, u64::MAX, 0])
}

/// Sets the protection of pages.
pub fn protect(address: u64, length: u64, protection: u64) -> u64 {
    call3(nr::MPROTECT, address, length, protection)
}

/// Whether this process may write the page at `address`; `None` if the kernel cannot tell (before Linux 5.14).
pub fn is_writable(address: u64) -> Option<bool> {
    const POPULATE_WRITE: u64 = 23;
    match call3(nr::MADVISE, address, 4096, POPULATE_WRITE) {
        errno::EINVAL => None,
        result => Some(result == 0),
    }
}

/// Gives memory of this process back to the system: it is zero again.
pub fn forget(address: u64, length: u64) {
    const DONTNEED: u64 = 4;
    call3(nr::MADVISE, address, length, DONTNEED);
}

/// Waits until the word at `address` is not `value`, at most for some milliseconds.
pub fn wait(address: u64, value: u32, milliseconds: u64) {
    let timeout = [0u64, milliseconds * 1_000_000];
    call(nr::FUTEX, [address, 0, u64::from(value), timeout.as_ptr() as u64, 0, 0]);
}

/// Wakes all that wait for the word at `address`.
pub fn wake(address: u64) {
    call3(nr::FUTEX, address, 1, i32::MAX as u64);
}

/// The processor's time-stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: every x86-64 processor has this instruction.
    unsafe { core::arch::x86_64::_rdtsc() }
}
