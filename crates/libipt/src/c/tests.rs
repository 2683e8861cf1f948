//! The functions as C calls them. `cargo judge libipt` compares all of them with Intel's library.

use std::{
    ffi::{CString, c_int, c_void},
    fs,
    mem::zeroed,
    ptr,
};

use hodo_intel_pt::packet::{IpPayload, Packet, Tnt};

use super::{abi, blocks::*, call, config::*, image::*, instructions::*, packets::*, query::*};
use crate::{Error, Status};

const PENDING: c_int = 1;
const SUPPRESSED: c_int = 2;
const END: c_int = 4;

/// nop; jne back to it; ret
const CODE: [u8; 4] = [0x90, 0x75, 0xfd, 0xc3];
const BASE: u64 = 0x1000;

/// A loop that runs twice, then an interrupt before the return.
fn trace() -> Vec<u8> {
    let packets = [
        Packet::Psb,
        Packet::ModeExec { cs_l: true, cs_d: false, interrupt_flag: false },
        Packet::Fup(IpPayload::Full(BASE)),
        Packet::PsbEnd,
        Packet::Tnt8(Tnt { bits: 0b10, count: 2 }),
        Packet::Fup(IpPayload::Full(BASE + 3)),
        Packet::TipPgd(IpPayload::Suppressed),
    ];
    packets.iter().flat_map(|packet| packet.encode().to_vec()).collect()
}

fn config(trace: &mut [u8]) -> abi::Config {
    // SAFETY: all zeros are a valid configuration.
    let zero: abi::Config = unsafe { zeroed() };
    let range = trace.as_mut_ptr_range();
    abi::Config { size: size_of::<abi::Config>(), begin: range.start, end: range.end, ..zero }
}

extern "C" fn read_code(
    to: *mut u8,
    size: usize,
    _: *const abi::Asid,
    address: u64,
    _: *mut c_void,
) -> c_int {
    let Some(rest) = address.checked_sub(BASE).and_then(|offset| CODE.get(offset as usize..)) else {
        return Error::NO_MAP.0;
    };
    let size = size.min(rest.len());
    // SAFETY: the decoder's buffer has so many bytes.
    unsafe { ptr::copy_nonoverlapping(rest.as_ptr(), to, size) };
    size as c_int
}

#[test]
fn instructions_and_events_come_in_order() {
    let mut trace = trace();
    let config = config(&mut trace);
    // SAFETY: all pointers are valid, and the decoder is freed at the end.
    unsafe {
        let decoder = pt_insn_alloc_decoder(&raw const config);
        pt_image_set_callback(pt_insn_get_image(decoder), Some(read_code), ptr::null_mut());
        let mut event: abi::Event = zeroed();
        let mut instruction: abi::Instruction = zeroed();
        let mut addresses = Vec::new();
        let mut kinds = Vec::new();
        let mut status = pt_insn_sync_forward(decoder);
        assert_eq!(status, PENDING);
        while status >= 0 && status & END == 0 {
            if status & PENDING != 0 {
                status = pt_insn_event(decoder, &raw mut event, size_of::<abi::Event>());
                kinds.push((addresses.len(), event.kind));
            } else {
                status = pt_insn_next(decoder, &raw mut instruction, size_of::<abi::Instruction>());
                addresses.push(instruction.ip);
            }
        }
        assert_eq!(status, END | SUPPRESSED);
        assert_eq!(addresses, [0x1000, 0x1001, 0x1000, 0x1001]);
        // The mode of the PSB+, and the asynchronous end of tracing.
        assert_eq!(kinds, [(0, 7), (4, 2)]);
        assert_eq!(pt_insn_next(decoder, &raw mut instruction, size_of::<abi::Instruction>()), Error::END.0);
        pt_insn_free_decoder(decoder);
    }
}

#[test]
fn blocks_end_at_branches_and_events() {
    let mut trace = trace();
    let config = config(&mut trace);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("code");
    fs::write(&file, CODE).unwrap();
    let name = CString::new(file.to_str().unwrap()).unwrap();
    // SAFETY: all pointers are valid, and everything is freed once.
    unsafe {
        let cache = pt_iscache_alloc(ptr::null());
        let isid = pt_iscache_add_file(cache, name.as_ptr(), 0, u64::MAX, BASE);
        assert_eq!((isid, pt_iscache_add_file(cache, name.as_ptr(), 0, 4, BASE)), (1, 1));
        let image = pt_image_alloc(ptr::null());
        assert_eq!(pt_image_add_cached(image, cache, isid, ptr::null()), 0);
        let decoder = pt_blk_alloc_decoder(&raw const config);
        pt_blk_set_image(decoder, image);
        // The decoder keeps it.
        pt_image_free(image);
        let mut event: abi::Event = zeroed();
        let mut block: abi::Block = zeroed();
        let mut found = Vec::new();
        let mut status = pt_blk_sync_forward(decoder);
        while status >= 0 && status & END == 0 {
            if status & PENDING != 0 {
                status = pt_blk_event(decoder, &raw mut event, size_of::<abi::Event>());
            } else {
                status = pt_blk_next(decoder, &raw mut block, size_of::<abi::Block>());
                found.push((block.ip, block.end_ip, block.instructions, block.isid));
            }
        }
        assert_eq!(found, [(0x1000, 0x1001, 2, 1), (0x1000, 0x1001, 2, 1)]);
        pt_blk_free_decoder(decoder);
        pt_iscache_free(cache);
    }
}

#[test]
fn queries_are_answered_or_refused() {
    let mut trace = trace();
    let config = config(&mut trace);
    // SAFETY: all pointers are valid, and the decoder is freed at the end.
    unsafe {
        let decoder = pt_qry_alloc_decoder(&raw const config);
        let (mut ip, mut taken, mut event) = (0, 7, zeroed::<abi::Event>());
        assert_eq!(pt_qry_sync_forward(decoder, &raw mut ip), PENDING);
        assert_eq!(ip, BASE);
        assert_eq!(pt_qry_cond_branch(decoder, &raw mut taken), Error::BAD_QUERY.0);
        assert_eq!(pt_qry_event(decoder, &raw mut event, size_of::<abi::Event>()), 0);
        assert_eq!((pt_qry_cond_branch(decoder, &raw mut taken), taken), (0, 1));
        assert_eq!((pt_qry_cond_branch(decoder, &raw mut taken), taken), (PENDING, 0));
        assert_eq!(pt_qry_event(decoder, &raw mut event, 8), Error::INVALID.0);
        assert_eq!(pt_qry_event(decoder, &raw mut event, size_of::<abi::Event>()), END);
        assert_eq!(pt_qry_sync_set(decoder, ptr::null_mut(), 1), Error::NO_SYNC.0);
        pt_qry_free_decoder(decoder);
    }
}

#[test]
fn packets_are_encoded_as_they_were_decoded() {
    let mut trace = trace();
    let mut copy = vec![0; trace.len()];
    let (from, to) = (config(&mut trace), config(&mut copy));
    // SAFETY: all pointers are valid, and both are freed at the end.
    unsafe {
        let (decoder, encoder) = (pt_pkt_alloc_decoder(&raw const from), pt_alloc_encoder(&raw const to));
        let mut packet: abi::Packet = zeroed();
        assert_eq!(pt_pkt_next(decoder, &raw mut packet, size_of::<abi::Packet>()), Error::NO_SYNC.0);
        assert_eq!(pt_pkt_sync_forward(decoder), 0);
        while pt_pkt_next(decoder, &raw mut packet, size_of::<abi::Packet>()) > 0 {
            assert_eq!(pt_enc_next(encoder, &raw const packet), packet.size.into());
        }
        assert_eq!(pt_enc_next(encoder, &raw const packet), Error::END.0);
        pt_pkt_free_decoder(decoder);
        pt_free_encoder(encoder);
    }
    assert_eq!(copy, trace);
}

#[test]
fn null_and_panics_are_errors() {
    // SAFETY: null is allowed everywhere.
    unsafe {
        assert!(pt_qry_alloc_decoder(ptr::null()).is_null());
        assert_eq!(pt_qry_sync_forward(ptr::null_mut(), ptr::null_mut()), Error::INVALID.0);
        assert_eq!(pt_insn_next(ptr::null_mut(), ptr::null_mut(), 0), Error::INVALID.0);
        assert_eq!(pt_cpu_errata(ptr::null_mut(), ptr::null()), Error::INVALID.0);
        pt_blk_free_decoder(ptr::null_mut());
    }
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let result = call(|| -> Result<Status, Error> { panic!("a broken invariant") });
    std::panic::set_hook(hook);
    assert_eq!(result, Error::INTERNAL.0);
}
