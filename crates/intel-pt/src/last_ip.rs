//! IP compression (SDM, "IP Compression").

use crate::packet::IpPayload;

/// The last IP that a packet carried, which shorter payloads update.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastIp {
    ip: u64,
    /// No packet was lost since that may have carried another.
    known: bool,
}

impl LastIp {
    /// As it is after a PSB.
    pub(crate) const ZERO: LastIp = LastIp { ip: 0, known: true };

    /// Packets were lost or damaged: payloads that update the last IP mean nothing until one comes that
    /// does not.
    pub(crate) fn forget(&mut self) {
        self.known = false;
    }

    /// The IP that a payload means; `None` where it is suppressed, which leaves the last IP as it was, or
    /// where it updates an IP that is not known.
    #[inline]
    pub(crate) fn join(&mut self, payload: IpPayload) -> Option<u64> {
        let keep = |bits: u32, low: u64| self.ip & (u64::MAX << bits) | low;
        let (ip, whole) = match payload {
            IpPayload::Suppressed => return None,
            IpPayload::Update16(low) => (keep(16, u64::from(low)), false),
            IpPayload::Update32(low) => (keep(32, u64::from(low)), false),
            IpPayload::Sext48(low) => (((low << 16) as i64 >> 16) as u64, true),
            IpPayload::Update48(low) => (keep(48, low), false),
            IpPayload::Full(ip) => (ip, true),
        };
        self.ip = ip;
        self.known |= whole;
        self.known.then_some(ip)
    }

    /// The last IP, if no packet was lost that may have carried another.
    #[inline]
    pub(crate) fn get(&self) -> Option<u64> {
        self.known.then_some(self.ip)
    }

    /// Packets were read that carried this IP last.
    #[inline]
    pub(crate) fn set(&mut self, ip: u64) {
        self.ip = ip;
    }

    /// A guess proved to be right.
    pub(crate) fn trust(&mut self) {
        self.known = true;
    }

    /// What the IP is that was joined last, if no packet was lost that carried one.
    pub(crate) fn guess(&self, payload: IpPayload) -> Option<u64> {
        (payload != IpPayload::Suppressed).then_some(self.ip)
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
