//! The way between translated code and the runtime, in assembly.
//!
//! Translated code enters with the program's registers, saves them in the thread's context, and runs the dispatcher on a
//! stack of its own. From `hodo_tail` on nothing but the context is read, so a signal that arrives there may poison the
//! log's pointer at once.

#![allow(unsafe_code)]

use core::arch::global_asm;

use crate::{
    context::{Context, inside, offset, pending, reason},
    layout::slot_state,
    sys::nr,
};

global_asm!(
    r#"
    .text
    .globl hodo_stubs
hodo_stubs:
    .globl hodo_enter_link
hodo_enter_link:
    mov dword ptr gs:[{reason}], ecx
    mov rcx, gs:[{saved_rcx}]
    jmp 1f
    .balign 8
    .globl hodo_enter_miss
hodo_enter_miss:
    mov dword ptr gs:[{reason}], {miss}
    mov rcx, gs:[{saved_rcx}]
    mov rdx, gs:[{saved_rdx}]
    jmp 1f
    .globl hodo_enter_pc
hodo_enter_pc:
    mov dword ptr gs:[{reason}], {at_pc}
1:
    mov dword ptr gs:[{inside}], {in_runtime}
    mov gs:[{registers}], rax
    mov gs:[{registers}+8], rcx
    mov gs:[{registers}+16], rdx
    mov gs:[{registers}+24], rbx
    mov gs:[{registers}+32], rsp
    mov gs:[{registers}+40], rbp
    mov gs:[{registers}+48], rsi
    mov gs:[{registers}+56], rdi
    mov gs:[{registers}+64], r8
    mov gs:[{registers}+72], r9
    mov gs:[{registers}+80], r10
    mov gs:[{registers}+88], r11
    mov gs:[{registers}+96], r12
    mov gs:[{registers}+104], r13
    mov gs:[{registers}+112], r14
    mov gs:[{registers}+120], r15
    mov rsp, gs:[{host_stack}]
    pushfq
    pop qword ptr gs:[{flags}]
    cld
    // Programs that look for the processor's kind set the flag that makes unaligned accesses fault.
    test dword ptr gs:[{flags}], 0x40000
    jz 4f
    // Interrupts are on, and a bit that always is.
    push 0x202
    popfq
4:
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movups gs:[{vectors}+16*\n], xmm\n
    .endr
    mov rdi, gs:[{address}]
    call {dispatch}
    .globl hodo_tail
hodo_tail:
    cmp dword ptr gs:[{pending}], {noted}
    jne 2f
    call {poison}
2:
    cmp dword ptr gs:[{pending}], {delivering}
    je 6f
    // Either this thread sees that it must wait, or others see that it is in translated code, which is 0.
    xor eax, eax
    xchg gs:[{inside}], eax
    movabs rax, {leaving}
    cmp dword ptr [rax], 0
    je 4f
    cmp dword ptr gs:[{borrows}], 0
    je 5f
4:
    mov eax, dword ptr [rip + {hold}]
    cmp eax, dword ptr gs:[{hold_at_resume}]
    je 6f
5:
    mov dword ptr gs:[{inside}], {in_runtime}
    call {park}
    jmp hodo_tail
6:
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movups xmm\n, gs:[{vectors}+16*\n]
    .endr
    mov rsp, gs:[{host_stack}]
    push qword ptr gs:[{flags}]
    popfq
    mov rax, gs:[{registers}]
    mov rcx, gs:[{registers}+8]
    mov rdx, gs:[{registers}+16]
    mov rbx, gs:[{registers}+24]
    mov rbp, gs:[{registers}+40]
    mov rsi, gs:[{registers}+48]
    mov rdi, gs:[{registers}+56]
    mov r8, gs:[{registers}+64]
    mov r9, gs:[{registers}+72]
    mov r10, gs:[{registers}+80]
    mov r11, gs:[{registers}+88]
    mov r12, gs:[{registers}+96]
    mov r13, gs:[{registers}+104]
    mov r14, gs:[{registers}+112]
    mov r15, gs:[{registers}+120]
    mov rsp, gs:[{registers}+32]
    jmp qword ptr gs:[{resume}]
    .globl hodo_stubs_end
hodo_stubs_end:

    // The program stands at the context's pc with all its registers, and a signal waits.
    .globl hodo_deliver
hodo_deliver:
    ud2

    // The first instruction of the runtime in a new program. rdi: the program's first instruction, rsi: its stack.
    .globl hodo_start
hodo_start:
    mov r12, rdi
    mov r13, rsi
    call {begin}
    test rax, rax
    jz hodo_tail
    // Nothing can be recorded: the program runs alone.
    mov rsp, r13
    mov rax, r12
    xor r12d, r12d
    xor r13d, r13d
    xor ecx, ecx
    xor edx, edx
    xor esi, esi
    xor edi, edi
    jmp rax

    // The first instruction of the runtime in a thread of a running program. rdi: its description.
    .globl hodo_attach
hodo_attach:
    sub rsp, 256
    .irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    movups [rsp+16*\n], xmm\n
    .endr
    mov rsi, rsp
    call {attach}
    test rax, rax
    jz hodo_tail
    // It cannot be recorded: the recorder gives it its registers back.
7:
    mov eax, {sched_yield}
    syscall
    jmp 7b

    .globl hodo_restore
hodo_restore:
    mov eax, {rt_sigreturn}
    syscall

    // rdi: where the program's frame was rebuilt. The kernel restores all registers from it.
    .globl hodo_sigreturn
hodo_sigreturn:
    mov rsp, rdi
    mov eax, {rt_sigreturn}
    syscall

    // rdi: to, rsi: from, rdx: length. Returns what was left when memory was inaccessible.
    .globl hodo_copy
hodo_copy:
    mov rcx, rdx
    .globl hodo_copy_fault
hodo_copy_fault:
    rep movsb
    .globl hodo_copy_end
hodo_copy_end:
    mov rax, rcx
    ret

    // rdi: the context. Makes the program's system call, unless a signal waits.
    .globl hodo_program_call
hodo_program_call:
    mov rax, [rdi+{registers}]
    mov rdx, [rdi+{registers}+16]
    mov rsi, [rdi+{registers}+48]
    mov r8, [rdi+{registers}+64]
    mov r9, [rdi+{registers}+72]
    mov r10, [rdi+{registers}+80]
    mov rdi, [rdi+{registers}+56]
    .globl hodo_call_check
hodo_call_check:
    cmp dword ptr gs:[{pending}], 0
    jne hodo_call_interrupted
    syscall
    .globl hodo_call_end
hodo_call_end:
    ret
    .globl hodo_call_interrupted
hodo_call_interrupted:
    mov rax, 0x8000000000000000
    ret

    // rdi: the number, rsi: six arguments, rdx: the context of the new thread or process.
    .globl hodo_clone
hodo_clone:
    push rbx
    mov rbx, rdx
    mov rax, rdi
    mov r11, rsi
    mov rdi, [r11]
    mov rsi, [r11+8]
    mov rdx, [r11+16]
    mov r10, [r11+24]
    mov r8, [r11+32]
    mov r9, [r11+40]
    syscall
    test rax, rax
    jz 3f
    pop rbx
    ret
3:
    mov rsp, [rbx+{host_stack}]
    mov rdi, rbx
    call {child}
    jmp hodo_tail

    // rdi: where the state is, which becomes DONE when the stack is no longer in use; rsi: the result.
    .globl hodo_exit
hodo_exit:
    mov dword ptr [rdi], {done}
    mov rdi, rsi
    mov eax, {exit}
    syscall
"#,
    reason = const core::mem::offset_of!(Context, reason),
    saved_rcx = const offset::SAVED_RCX,
    saved_rdx = const offset::SAVED_RDX,
    miss = const reason::MISS,
    at_pc = const reason::AT_PC,
    in_runtime = const inside::RUNTIME,
    noted = const pending::NOTED,
    delivering = const pending::DELIVERING,
    done = const slot_state::DONE,
    exit = const nr::EXIT,
    sched_yield = const nr::SCHED_YIELD,
    rt_sigreturn = const nr::RT_SIGRETURN,
    registers = const core::mem::offset_of!(Context, registers),
    host_stack = const core::mem::offset_of!(Context, host_stack),
    flags = const core::mem::offset_of!(Context, flags),
    vectors = const core::mem::offset_of!(Context, vectors),
    address = const core::mem::offset_of!(Context, address),
    pending = const core::mem::offset_of!(Context, pending),
    resume = const core::mem::offset_of!(Context, resume),
    dispatch = sym crate::dispatch::hodo_dispatch,
    poison = sym crate::dispatch::hodo_poison,
    child = sym crate::thread::hodo_child,
    begin = sym crate::start::hodo_begin,
    attach = sym crate::attach::hodo_attached,
    park = sym crate::hold::hodo_park,
    hold = sym crate::hold::HOLD,
    borrows = const core::mem::offset_of!(Context, borrows),
    hold_at_resume = const core::mem::offset_of!(Context, hold_at_resume),
    inside = const core::mem::offset_of!(Context, inside),
    leaving = const crate::layout::ARENA + core::mem::offset_of!(crate::layout::ArenaHeader, leaving) as u64,
);

#[allow(missing_docs)]
unsafe extern "C" {
    pub fn hodo_stubs();
    pub fn hodo_stubs_end();
    pub fn hodo_enter_link();
    pub fn hodo_enter_miss();
    pub fn hodo_enter_pc();
    pub fn hodo_tail();
    pub fn hodo_deliver();
    pub fn hodo_restore();
    pub fn hodo_copy_fault();
    pub fn hodo_copy_end();
    pub fn hodo_call_check();
    pub fn hodo_call_end();
    pub fn hodo_call_interrupted();
    pub fn hodo_copy(to: u64, from: u64, length: u64) -> u64;
    pub fn hodo_program_call(context: &Context) -> u64;
    pub fn hodo_clone(number: u64, arguments: *const [u64; 6], context: &Context) -> u64;
    pub fn hodo_sigreturn(frame: u64) -> !;
    pub fn hodo_exit(state: u64, result: u64) -> !;
}

/// An address in the stubs.
pub type Stub = unsafe extern "C" fn();

/// The address of a stub.
pub fn address(stub: Stub) -> u64 {
    stub as usize as u64
}

/// Makes the program's system call from its context; [`INTERRUPTED`] if a signal came first.
pub fn program_call(context: &Context) -> u64 {
    // SAFETY: the program asked for the call, and the dispatcher has checked that it leaves the runtime intact.
    unsafe { hodo_program_call(context) }
}

/// The result of [`program_call`] when no call was made.
pub const INTERRUPTED: u64 = 1 << 63;

/// Starts a thread or process whose state is `child`.
pub fn clone(number: u64, arguments: &[u64; 6], child: &Context) -> u64 {
    // SAFETY: `child` is a prepared slot, whose stack the new thread uses before it writes anything.
    unsafe { hodo_clone(number, arguments, child) }
}

/// Lets the kernel restore the program's registers from a frame.
pub fn sigreturn(frame: u64) -> ! {
    // SAFETY: the frame was rebuilt with addresses of the runtime.
    unsafe { hodo_sigreturn(frame) }
}

/// Ends the thread, and gives up its slot.
pub fn exit(state: u64, result: u64) -> ! {
    // SAFETY: the slot's log is flushed, and its signals are blocked.
    unsafe { hodo_exit(state, result) }
}
