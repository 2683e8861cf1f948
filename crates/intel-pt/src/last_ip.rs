//! IP compression (SDM, "IP Compression").

use crate::packet::IpPayload;

/// The last IP that a packet carried, which shorter payloads update.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastIp(u64);

impl LastIp {
    /// Forgets the last IP, as a PSB does.
    pub(crate) fn reset(&mut self) {
        self.0 = 0;
    }

    /// The IP that a payload means; `None` where it is suppressed, which leaves the last IP as it was.
    #[inline]
    pub(crate) fn join(&mut self, payload: IpPayload) -> Option<u64> {
        let keep = |bits: u32, low: u64| self.0 & (u64::MAX << bits) | low;
        self.0 = match payload {
            IpPayload::Suppressed => return None,
            IpPayload::Update16(low) => keep(16, u64::from(low)),
            IpPayload::Update32(low) => keep(32, u64::from(low)),
            IpPayload::Sext48(low) => ((low << 16) as i64 >> 16) as u64,
            IpPayload::Update48(low) => keep(48, low),
            IpPayload::Full(ip) => ip,
        };
        Some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_update_the_last_ip() {
        let mut last = LastIp::default();
        assert_eq!(last.join(IpPayload::Full(0x1122_3344_5566_7788)), Some(0x1122_3344_5566_7788));
        assert_eq!(last.join(IpPayload::Update16(0xabcd)), Some(0x1122_3344_5566_abcd));
        assert_eq!(last.join(IpPayload::Update32(1)), Some(0x1122_3344_0000_0001));
        assert_eq!(last.join(IpPayload::Suppressed), None);
        assert_eq!(last.join(IpPayload::Update48(0x2)), Some(0x1122_0000_0000_0002));
        assert_eq!(last.join(IpPayload::Sext48(0x8000_0000_0000)), Some(0xffff_8000_0000_0000));
        last.reset();
        assert_eq!(last.join(IpPayload::Update16(5)), Some(5));
    }
}
