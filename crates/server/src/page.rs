//! The embedded page: one file without references to others.

/// The page, as it was built with this program.
const PAGE: &str = include_str!(concat!(env!("OUT_DIR"), "/page.html"));
/// Where answers for a page without a server are inserted; the build of the page keeps it.
const PLACE: &str = "<!--answers-->";

/// Returns whether this program was built with the page.
pub fn is_built() -> bool {
    PAGE.contains(PLACE)
}

/// Returns the page, whose scripts carry a nonce.
pub(crate) fn served(nonce: &str) -> String {
    PAGE.replace("<script", &format!("<script nonce=\"{nonce}\""))
}
