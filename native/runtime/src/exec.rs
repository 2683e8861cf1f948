//! Programs that the program executes: the recorder puts the runtime into them.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::{
    calls::Outcome,
    context::{Context, register},
    layout::follow,
    limits,
    log::{self, arena},
    raw,
    signal::{self, Action, IGNORE, RAISED},
    state::lock,
    stubs::{self, INTERRUPTED},
    sys::{self, failed, nr},
    table,
    wire::note,
};

/// `AT_FDCWD`.
const CURRENT_FOLDER: u64 = -100i64 as u64;

/// `execve` and `execveat`.
pub fn execute(context: &Context, arguments: [u64; 6]) -> Outcome {
    let (folder, path, flags) = match context.register(register::RAX) {
        nr::EXECVE => (CURRENT_FOLDER, arguments[0], 0),
        _ => (arguments[0], arguments[1], arguments[4]),
    };
    let Some(mask) = signal::block(context) else { return Outcome::Interrupted };
    let runs = is_executable(folder, path, flags);
    let follows = runs && {
        let plain = !gains_privileges(folder, path, flags);
        let follows = plain && ask(context);
        if !follows {
            let _lock = lock();
            table::note(note::UNFOLLOWED, u64::from(context.process.get()));
        }
        follows
    };
    set_ignored(context, Execution::Begins);
    signal::set_mask(mask | context.blocked.get());
    limits::hand_over(Execution::Begins);
    let result = stubs::program_call(context);
    limits::hand_over(Execution::Failed);
    signal::set_mask(mask & !RAISED);
    set_ignored(context, Execution::Failed);
    if follows {
        let thread = u64::from(context.thread.get());
        const STOP: u64 = 19;
        arena().follow.store(follow::FAILED, Release);
        sys::call3(nr::TGKILL, u64::from(context.process.get()), thread, STOP);
    }
    if result == INTERRUPTED { Outcome::Interrupted } else { Outcome::Done(result) }
}

/// Whether the kernel would start the file.
fn is_executable(folder: u64, path: u64, flags: u64) -> bool {
    const EXECUTE: u64 = 1;
    const EMPTY_PATH: u64 = 0x1000;
    if flags & EMPTY_PATH != 0 {
        return true;
    }
    !failed(sys::call3(nr::FACCESSAT, folder, path, EXECUTE))
}

/// Whether the program gets other rights than its user: a tracer would take them away.
fn gains_privileges(folder: u64, path: u64, flags: u64) -> bool {
    const MODE: u64 = 24;
    const OWNER: u64 = 28;
    const SET_USER: u32 = 0o4000;
    const SET_GROUP: u32 = 0o2010;
    // AT_EMPTY_PATH and AT_SYMLINK_NOFOLLOW.
    const PATH_FLAGS: u64 = 0x1100;
    const GETEUID: u64 = 107;
    const GETXATTR: u64 = 191;
    let mut status = [0u64; 18];
    let result =
        sys::call(nr::NEWFSTATAT, [folder, path, status.as_mut_ptr() as u64, flags & PATH_FLAGS, 0, 0]);
    if failed(result) {
        return false;
    }
    let base = status.as_ptr() as u64;
    let (mode, owner): (u32, u32) = (raw::read(base + MODE), raw::read(base + OWNER));
    let user = sys::call3(GETEUID, 0, 0, 0);
    let other = mode & SET_USER != 0 && u64::from(owner) != user;
    let capable =
        user != 0 && !failed(sys::call(GETXATTR, [path, c"security.capability".as_ptr() as u64, 0, 0, 0, 0]));
    other || mode & SET_GROUP == SET_GROUP || capable
}

/// Asks the recorder to follow this thread into its next program.
fn ask(context: &Context) -> bool {
    let arena = arena();
    if arena.leaving.load(Acquire) != 0 {
        return false;
    }
    while arena.follow.compare_exchange(follow::FREE, follow::TAKEN, AcqRel, Relaxed).is_err() {
        if !log::open() {
            return false;
        }
        sys::wait(&raw const arena.follow as u64, arena.follow.load(Relaxed), 1);
    }
    const SET_PTRACER: u64 = 0x5961_6d61;
    sys::call3(nr::PRCTL, SET_PTRACER, arena.recorder.load(Relaxed), 0);
    arena.follow_thread.store(context.thread.get(), Relaxed);
    arena.follow_process.store(context.process.get(), Relaxed);
    arena.follow.store(follow::ASKED, Release);
    arena.requests.fetch_add(1, Release);
    sys::wake(&raw const arena.requests as u64);
    loop {
        match arena.follow.load(Acquire) {
            follow::READY => return true,
            follow::REFUSED => {
                arena.follow.store(follow::FREE, Release);
                return false;
            }
            follow::ASKED if arena.leaving.load(Acquire) != 0 => {
                if arena.follow.compare_exchange(follow::ASKED, follow::FREE, AcqRel, Relaxed).is_ok() {
                    return false;
                }
            }
            state if log::open() => sys::wait(&raw const arena.follow as u64, state, 20),
            _ => return false,
        }
    }
}

/// What happens to the execution of another program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Execution {
    /// The program is about to be executed.
    Begins,
    /// It could not be executed.
    Failed,
}

/// A new program inherits which signals are ignored, but the kernel knows the runtime's handlers only. So before it is
/// executed, the kernel is told to ignore what the program ignores; if it could not be executed, the runtime's handlers are
/// installed again.
fn set_ignored(context: &Context, execution: Execution) {
    for number in 1..=31 {
        let action = signal::action_of(context, number);
        if RAISED >> (number - 1) & 1 == 0 || action.handler != IGNORE {
            continue;
        }
        if execution == Execution::Begins {
            let ignored = Action { handler: IGNORE, flags: 0, restorer: 0, mask: 0 };
            sys::call(nr::RT_SIGACTION, [u64::from(number), &raw const ignored as u64, 0, 8, 0, 0]);
        } else {
            signal::install(number, &action);
        }
    }
}
