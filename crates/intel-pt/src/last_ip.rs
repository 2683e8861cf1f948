//! IP compression (SDM, "IP Compression").

use crate::packet::IpPayload;

/// The last IP of the packets so far, which compressed payloads update.
#[derive(Clone, Copy, Debug)]
pub struct LastIp {
    ip: u64,
    /// Whether no packet that may have carried an IP was lost since.
    known: bool,
}

impl LastIp {
    /// The state after a PSB.
    pub const ZERO: LastIp = LastIp { ip: 0, known: true };

    /// Packets were lost or damaged: payloads that update the last IP have no meaning until one carries a whole IP.
    pub(crate) fn forget(&mut self) {
        self.known = false;
    }

    /// Applies a payload and returns the IP. Returns `None` if the IP is suppressed, which keeps the last IP, or if
    /// it updates an unknown IP.
    #[inline]
    pub fn join(&mut self, payload: IpPayload) -> Option<u64> {
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

    /// Returns the last IP, if it is known.
    #[inline]
    pub(crate) fn get(&self) -> Option<u64> {
        self.known.then_some(self.ip)
    }

    /// Sets the IP that the packets up to here carried last.
    #[inline]
    pub(crate) fn set(&mut self, ip: u64) {
        self.ip = ip;
    }

    /// Marks the IP as known: a guess proved right.
    pub(crate) fn trust(&mut self) {
        self.known = true;
    }

    /// Returns the IP joined last even if it is not known, unless the payload is suppressed.
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
