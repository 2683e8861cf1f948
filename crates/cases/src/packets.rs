//! Encodes packets from text, in the form in which they are printed.

use hodo_intel_pt::packet::{Decoder, IpPayload, Packet, Tnt};

use crate::{Assembly, Error, Line};

/// The bytes of a case's packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace<'a> {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The lines, in order.
    pub lines: Vec<EncodedLine<'a>>,
}

/// A line of packets and its place in the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodedLine<'a> {
    /// The offset of its bytes.
    pub offset: usize,
    /// Its text.
    pub text: &'a str,
}

/// Encodes lines.
///
/// # Errors
/// The first line that is not a packet.
pub fn encode<'a>(lines: &[Line<'a>], assembly: &Assembly) -> Result<Trace<'a>, Error> {
    let mut trace = Trace::default();
    // The size of block items, as in the last BBP.
    let mut short_items = false;
    for &Line { number, text } in lines {
        trace.lines.push(EncodedLine { offset: trace.bytes.len(), text });
        let mut words = Words { words: text.split_whitespace().collect(), assembly };
        let bytes = match words.raw() {
            Some(bytes) => {
                let byte = |word: &&str| u8::from_str_radix(word, 16).ok().filter(|_| word.len() == 2);
                let bytes: Option<Vec<u8>> = bytes.iter().map(byte).collect();
                bytes.ok_or_else(|| Error::new(number, "expected db and bytes of two hex digits"))?
            }
            None => {
                let packet = words.packet().filter(|_| words.words.is_empty());
                let packet = packet.ok_or_else(|| Error::new(number, format!("`{text}` is not a packet")))?;
                if let Packet::Bbp { short_items: short, .. } = packet {
                    short_items = short;
                }
                encoded(&packet, short_items)
                    .ok_or_else(|| Error::new(number, format!("`{text}` has a value that is too large")))?
            }
        };
        trace.bytes.extend(bytes);
    }
    Ok(trace)
}

/// The packet's bytes, if its values fit.
fn encoded(packet: &Packet, short_items: bool) -> Option<Vec<u8>> {
    let bytes = packet.encode_item(short_items).to_vec();
    let mut read = Vec::new();
    // A BIP is only valid in a block.
    if let Packet::Bip { .. } = packet {
        read.extend_from_slice(&Packet::Bbp { short_items, kind: 0 }.encode());
    }
    let start = read.len();
    read.extend_from_slice(&bytes);
    let mut decoder = Decoder::new(&read, 0);
    while decoder.position() < start {
        decoder.next_packet().ok()?;
    }
    (decoder.next_packet() == Ok(Some(*packet))).then_some(bytes)
}

/// The remaining words of a line.
struct Words<'a, 'x> {
    words: Vec<&'a str>,
    assembly: &'x Assembly,
}

impl<'a> Words<'a, '_> {
    /// The words after `db`.
    fn raw(&self) -> Option<&[&'a str]> {
        let (&name, bytes) = self.words.split_first()?;
        (name == "db").then_some(bytes)
    }

    fn next(&mut self) -> Option<&'a str> {
        (!self.words.is_empty()).then(|| self.words.remove(0))
    }

    /// Removes a word from any position; returns whether it was there.
    fn flag(&mut self, name: &str) -> bool {
        let index = self.words.iter().position(|&word| word == name);
        index.map(|index| self.words.remove(index)).is_some()
    }

    /// Returns the rest of the next word after this prefix.
    fn after(&mut self, prefix: &str) -> Option<&'a str> {
        self.next()?.strip_prefix(prefix)
    }

    /// Parses the hexadecimal number after this prefix in the next word.
    fn hex(&mut self, prefix: &str) -> Option<u64> {
        u64::from_str_radix(self.after(prefix)?, 16).ok()
    }

    fn small_hex(&mut self, prefix: &str) -> Option<u8> {
        self.hex(prefix)?.try_into().ok()
    }

    fn decimal(&mut self, prefix: &str) -> Option<u64> {
        self.after(prefix)?.parse().ok()
    }

    fn small(&mut self, prefix: &str) -> Option<u8> {
        self.decimal(prefix)?.try_into().ok()
    }

    fn tnt(&mut self) -> Option<Tnt> {
        let branches = self.next()?;
        let mut tnt = Tnt { bits: 0, count: 0 };
        for branch in branches.chars() {
            let taken = match branch {
                'T' => 1,
                'N' => 0,
                _ => return None,
            };
            tnt.bits = tnt.bits << 1 | taken;
            tnt.count = tnt.count.checked_add(1).filter(|&count| count < 48)?;
        }
        (tnt.count > 0).then_some(tnt)
    }

    /// `SIZE:ADDRESS`; a label's address is truncated to the size.
    fn ip(&mut self) -> Option<IpPayload> {
        let word = self.next()?;
        if word == "suppressed" {
            return Some(IpPayload::Suppressed);
        }
        let (size, address) = word.split_once(':')?;
        let bits: u32 = size.trim_end_matches('s').parse().ok()?;
        let value = match address.strip_prefix('%') {
            Some(label) => self.assembly.address(label)? & u64::MAX.checked_shr(64u32.checked_sub(bits)?)?,
            None => u64::from_str_radix(address, 16).ok()?,
        };
        match size {
            "16" => Some(IpPayload::Update16(value.try_into().ok()?)),
            "32" => Some(IpPayload::Update32(value.try_into().ok()?)),
            "48s" => Some(IpPayload::Sext48(value)),
            "48" => Some(IpPayload::Update48(value)),
            "64" => Some(IpPayload::Full(value)),
            _ => None,
        }
    }

    fn packet(&mut self) -> Option<Packet> {
        let name = self.next()?;
        match name {
            "PAD" => Some(Packet::Pad),
            "PSB" => Some(Packet::Psb),
            "PSBEND" => Some(Packet::PsbEnd),
            "TNT" => self.tnt().filter(|tnt| tnt.count <= 6).map(Packet::Tnt8),
            "TNT-64" => self.tnt().map(Packet::Tnt64),
            "TIP" => self.ip().map(Packet::Tip),
            "TIP.PGE" => self.ip().map(Packet::TipPge),
            "TIP.PGD" => self.ip().map(Packet::TipPgd),
            "FUP" => self.ip().map(Packet::Fup),
            "OVF" => Some(Packet::Overflow),
            "TRACESTOP" => Some(Packet::TraceStop),
            "MODE.Exec" => self.mode_exec(),
            "MODE.TSX" => {
                Some(Packet::ModeTsx { in_transaction: self.flag("INTX"), aborted: self.flag("ABRT") })
            }
            "PIP" => Some(Packet::Pip { cr3: self.hex("cr3=")?, non_root: self.flag("NR") }),
            "VMCS" => self.hex("").map(Packet::Vmcs),
            "CBR" => self.small("").map(Packet::Cbr),
            "TSC" => self.hex("").map(Packet::Tsc),
            "TMA" => Some(Packet::Tma {
                ctc: self.hex("ctc=")?.try_into().ok()?,
                fast_counter: self.hex("fc=")?.try_into().ok()?,
            }),
            "MTC" => self.small_hex("").map(Packet::Mtc),
            "CYC" => self.decimal("").map(Packet::Cyc),
            "MNT" => self.hex("").map(Packet::Mnt),
            _ => self.optional(name),
        }
    }

    fn mode_exec(&mut self) -> Option<Packet> {
        let (cs_l, cs_d) = match self.next()? {
            "64" => (true, false),
            "32" => (false, true),
            "16" => (false, false),
            _ => return None,
        };
        Some(Packet::ModeExec { cs_l, cs_d, interrupt_flag: self.flag("IF") })
    }

    /// Packets of the PTWRITE, power event, PEBS and event trace features.
    fn optional(&mut self, name: &str) -> Option<Packet> {
        match name {
            "PTW" => {
                let ip = self.flag("IP");
                let (size, payload) = self.next()?.split_once(':')?;
                let wide = match size {
                    "64" => true,
                    "32" => false,
                    _ => return None,
                };
                Some(Packet::PtWrite { payload: u64::from_str_radix(payload, 16).ok()?, wide, ip })
            }
            "EXSTOP" => Some(Packet::ExStop { ip: self.flag("IP") }),
            "MWAIT" => {
                Some(Packet::Mwait { hints: self.small_hex("hints=")?, extensions: self.small_hex("ext=")? })
            }
            "PWRE" => {
                let hardware = self.flag("HW");
                let (state, sub_state) = self.after("c")?.split_once('.')?;
                Some(Packet::Pwre {
                    hardware,
                    state: state.parse().ok()?,
                    sub_state: sub_state.parse().ok()?,
                })
            }
            "PWRX" => Some(Packet::Pwrx {
                last: self.small("last=c")?,
                deepest: self.small("deepest=c")?,
                reason: self.small_hex("reason=")?,
            }),
            "BBP" => {
                let kind = self.small_hex("type=")?;
                let short_items = match self.after("sz=")? {
                    "4" => true,
                    "8" => false,
                    _ => return None,
                };
                Some(Packet::Bbp { short_items, kind })
            }
            "BIP" => Some(Packet::Bip { id: self.small_hex("id=")?, payload: self.hex("")? }),
            "BEP" => Some(Packet::Bep { ip: self.flag("IP") }),
            "CFE" => {
                let ip = self.flag("IP");
                Some(Packet::Cfe { ip, kind: self.small_hex("type=")?, vector: self.small_hex("vector=")? })
            }
            "TRIG" => {
                let (multiple, ip) = (self.flag("MULT"), self.flag("IP"));
                let triggers = self.small_hex("")?;
                let instructions = match self.words.is_empty() {
                    true => None,
                    false => Some(self.after("icnt=")?.parse().ok()?),
                };
                Some(Packet::Trig { ip, instructions, multiple, triggers })
            }
            "EVD" => Some(Packet::Evd { kind: self.small_hex("type=")?, payload: self.hex("")? }),
            _ => None,
        }
    }
}
