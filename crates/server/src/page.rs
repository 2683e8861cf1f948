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

/// Returns what comes before and after the answers of a page without a server. It may ask nobody for anything.
pub(crate) fn around_answers() -> (String, &'static str) {
    const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src \
                          'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">";
    let (before, after) = PAGE.split_once(PLACE).unwrap_or((PAGE, ""));
    (before.replacen("<head>", &format!("<head>{POLICY}"), 1), after)
}
