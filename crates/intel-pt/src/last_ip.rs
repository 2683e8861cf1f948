//! IP compression (SDM, "IP Compression").

use crate::packet::IpPayload;

/// The last IP that a packet carried, which shorter payloads update; `None` where packets were lost since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastIp(Option<u64>);

impl LastIp {
    /// As it is after a PSB.
    pub(crate) const ZERO: LastIp = LastIp(Some(0));

    /// Packets were lost or damaged: payloads that update the last IP mean nothing until one comes that
    /// does not.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    /// The IP that a payload means; `None` where it is suppressed, which leaves the last IP as it was, or
    /// where it updates an IP that is not known.
    #[inline]
    pub(crate) fn join(&mut self, payload: IpPayload) -> Option<u64> {
        let keep = |bits: u32, low: u64| self.0.map(|last| last & (u64::MAX << bits) | low);
        self.0 = match payload {
            IpPayload::Suppressed => return None,
            IpPayload::Update16(low) => keep(16, u64::from(low)),
            IpPayload::Update32(low) => keep(32, u64::from(low)),
            IpPayload::Sext48(low) => Some(((low << 16) as i64 >> 16) as u64),
            IpPayload::Update48(low) => keep(48, low),
            IpPayload::Full(ip) => Some(ip),
        };
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_update_the_last_ip() {
        let mut last = LastIp::ZERO;
        assert_eq!(last.join(IpPayload::Full(0x1122_3344_5566_7788)), Some(0x1122_3344_5566_7788));
        assert_eq!(last.join(IpPayload::Update16(0xabcd)), Some(0x1122_3344_5566_abcd));
        assert_eq!(last.join(IpPayload::Update32(1)), Some(0x1122_3344_0000_0001));
        assert_eq!(last.join(IpPayload::Suppressed), None);
        assert_eq!(last.join(IpPayload::Update48(0x2)), Some(0x1122_0000_0000_0002));
        assert_eq!(last.join(IpPayload::Sext48(0x8000_0000_0000)), Some(0xffff_8000_0000_0000));
        last.forget();
        assert_eq!(last.join(IpPayload::Update16(5)), None);
        assert_eq!(last.join(IpPayload::Sext48(5)), Some(5));
        assert_eq!(last.join(IpPayload::Update16(7)), Some(7));
    }
}
