//! System calls that change what is recorded.

use std::{cell::Cell, ffi::c_uint, mem};

use crate::{
    exec, memory,
    process::{COMM, PROCESS, Process},
    qemu::Id,
    spool::{NoteKind, Thread},
    target::{self, CallNumbers},
    threads,
};

thread_local! {
    /// The thread that forks, and its clock.
    static FORKING: Cell<(u32, u64)> = const { Cell::new((0, 0)) };
}

/// The context and arguments of a system call.
pub(crate) struct Call {
    pub(crate) index: u32,
    pub(crate) tid: u32,
    pub(crate) now: u64,
    pub(crate) arguments: [u64; 6],
}

#[rustfmt::skip]
pub(crate) extern "C" fn entered(
    _: Id, index: c_uint, number: i64, a1: u64, a2: u64, a3: u64, a4: u64, a5: u64, a6: u64, _: u64, _: u64,
) {
    let Some(thread) = threads::get(index) else { return };
    // SAFETY: the callback is for this thread, so no other code uses its words.
    let thread: &mut Thread = unsafe { &mut *thread };
    thread.leave();
    let call = Call {
        index,
        tid: thread.tid as u32,
        now: thread.counts.now,
        arguments: [a1, a2, a3, a4, a5, a6],
    };
    let calls = target::current().calls();
    match number {
        _ if number == calls.rt_sigreturn => thread.last_frame = [0; 2],
        _ if number == calls.exit => threads::end(index),
        _ if number == calls.exit_group => threads::leave_others(index),
        _ if number == calls.execve || number == calls.execveat => {
            exec::execute(&call, number == calls.execveat);
        }
        _ => with_process(|process| shared(process, calls, number, &call)),
    }
}

fn with_process(action: impl FnOnce(&mut Process)) {
    if let Some(process) = PROCESS.lock().as_mut() {
        action(process);
    }
}

/// Calls that change the shared state of a process's threads.
fn shared(process: &mut Process, calls: &CallNumbers, number: i64, call: &Call) {
    let [a1, a2, a3, a4, a5, _] = call.arguments;
    if number == calls.mmap && a3 as i32 & libc::PROT_EXEC != 0 && a4 as i32 & libc::MAP_ANONYMOUS == 0 {
        process.maps(a5 as i32);
    }
    if number == calls.rt_sigaction {
        // SIG_DFL and SIG_IGN are 0 and 1.
        if let Some(handler) = memory::word(a2).filter(|&handler| a2 != 0 && handler > 1) {
            process.add_handler(handler);
        }
    } else if number == calls.mmap && a4 as i32 & libc::MAP_FIXED != 0 || number == calls.munmap {
        process.unmap(a1, a2);
    } else if number == calls.mremap {
        process.unmap(a1, a2);
        if a4 as i32 & libc::MREMAP_FIXED != 0 {
            process.unmap(a5, a3);
        }
    } else if number == calls.clone && a1 & libc::CLONE_VM as u64 != 0 && a1 & libc::CLONE_VFORK as u64 == 0 {
        process.clone_begins(a2, call.tid, call.now);
    } else if number == calls.clone || [calls.fork, calls.vfork].contains(&Some(number)) {
        FORKING.set((call.tid, call.now));
    } else if number == calls.prctl
        && a1 as i32 == libc::PR_SET_NAME
        && let Some(mut name) = memory::string(a2)
    {
        name.truncate(COMM);
        process.note(call.now, call.tid, NoteKind::Comm { name, exec: false });
    }
}

/// Before a fork: takes the lock, so that no other thread holds it when the child is made.
pub(crate) extern "C" fn before_fork() {
    mem::forget(PROCESS.lock());
}

/// After a fork, in the parent.
pub(crate) extern "C" fn after_fork() {
    PROCESS.unlock_after_fork();
}

/// After a fork, in the child: it has only this thread, and needs separate files.
pub(crate) extern "C" fn in_child() {
    PROCESS.unlock_after_fork();
    let (parent_tid, now) = FORKING.get();
    threads::forget_all();
    with_process(|process| process.become_child(parent_tid, now));
}
