//! The embedded page: one file without references to others.

/// The page that `cargo xtask web` built from `web/`. It is part of the source, so that every build of `hodo` has it.
const PAGE: &str = include_str!("../page.html");
/// Where answers for a page without a server are inserted; the build of the page keeps it.
const PLACE: &str = "<!--answers-->";

/// Returns the page, whose scripts carry a nonce.
pub(crate) fn served(nonce: &str) -> String {
    PAGE.replace("<script", &format!("<script nonce=\"{nonce}\""))
}

/// Returns what comes before and after the answers of a page without a server. It may not load anything.
pub(crate) fn around_answers() -> (String, &'static str) {
    const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src \
                          'unsafe-inline'; style-src 'unsafe-inline'; img-src data:\">";
    let (before, after) =
        PAGE.split_once(PLACE).expect("the build of the page keeps the place of the answers");
    (before.replacen("<head>", &format!("<head>{POLICY}"), 1), after)
}
