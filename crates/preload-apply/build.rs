//! Gives the library the name programs load it by: a cargo library name cannot hold a hyphen.

fn main() {
    println!("cargo:rustc-link-arg-cdylib=-Wl,-soname,libnumamma-apply.so");
    println!("cargo:rerun-if-changed=build.rs");
}
