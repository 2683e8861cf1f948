//! The serialised form of events.

use hodo_code::Bits;
use serde::{Serialize, Serializer, ser::SerializeStruct};

use crate::{Cause, Gap};

/// Writes a width of code as its number of bits.
pub(super) fn width<S: Serializer>(bits: &Bits, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u8(*bits as u8)
}

impl Serialize for Cause {
    /// As text, because the vector has a meaning for some kinds only.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Gap {
    /// With the reason as text.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Gap", 6)?;
        object.serialize_field("from", &self.from)?;
        object.serialize_field("to", &self.to)?;
        object.serialize_field("since", &self.since)?;
        object.serialize_field("until", &self.until)?;
        object.serialize_field("doubtful_since", &self.doubtful_since)?;
        object.serialize_field("reason", &self.trouble.to_string())?;
        object.end()
    }
}
