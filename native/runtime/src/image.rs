//! The runtime as an image without libc: the root of the build that `crates/native/build.rs` makes.

#![no_std]
#![no_main]
#![allow(unsafe_code, dead_code, missing_docs, unreachable_pub)]

mod attach;
mod cache;
mod calls;
mod context;
mod copy;
mod cpuid;
mod decode;
mod dispatch;
mod effect;
mod emit;
mod exec;
mod far;
mod flush;
mod frame;
mod guided;
mod hold;
mod layout;
mod limits;
mod link;
mod log;
mod pack;
mod pages;
mod processor;
mod raw;
mod regions;
mod select;
mod signal;
mod slot;
mod start;
mod state;
mod stubs;
mod sys;
mod table;
mod targets;
mod thread;
mod trace;
mod translate;
mod wire;

core::arch::global_asm!(
    r#"
    .balign 16
    .globl _start
_start:
    jmp hodo_start
    // ATTACH_ENTRY
    .balign 16
    jmp hodo_attach

    // Nothing unwinds.
    .globl rust_eh_personality
rust_eh_personality:
    ud2

    .globl memcpy
memcpy:
    mov rax, rdi
    mov rcx, rdx
    rep movsb
    ret

    .globl memmove
memmove:
    mov rax, rdi
    mov rcx, rdx
    mov r8, rdi
    sub r8, rsi
    cmp r8, rdx
    jb 1f
    rep movsb
    ret
1:
    lea rdi, [rdi+rdx-1]
    lea rsi, [rsi+rdx-1]
    std
    rep movsb
    cld
    ret

    .globl memset
memset:
    mov r9, rdi
    mov eax, esi
    mov rcx, rdx
    rep stosb
    mov rax, r9
    ret

    .globl memcmp
    .globl bcmp
memcmp:
bcmp:
    xor eax, eax
    xor ecx, ecx
1:
    cmp rcx, rdx
    je 2f
    movzx eax, byte ptr [rdi+rcx]
    movzx r8d, byte ptr [rsi+rcx]
    inc rcx
    sub eax, r8d
    je 1b
2:
    ret
"#
);

#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    dispatch::broken("hodo: the recorder's runtime panicked at line", info.location().map_or(0, |at| at.line().into()), 0)
}
