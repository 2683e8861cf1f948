//! Names the shared library as programs that link libipt expect it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libipt.so.2");
}
