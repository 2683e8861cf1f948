//! Embeds the page that `cargo xtask web` built; without one, a page that says how to build it.

use std::{env, fs, path::Path};

/// The built page, relative to this crate: one file, without references to others.
const PAGE: &str = "../../web/dist/index.html";
const ABSENT: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>hodo</title>\
    <p>This build of hodo has no page. Build it and hodo again: <code>cargo xtask web</code>, \
    then <code>cargo build -p hodo</code>. The page needs Node.js.</html>\n";

fn main() {
    println!("cargo:rerun-if-changed={PAGE}");
    let page = fs::read_to_string(PAGE).unwrap_or_else(|_| ABSENT.to_owned());
    let folder = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&folder).join("page.html"), page).expect("cargo's folder is writable");
}
