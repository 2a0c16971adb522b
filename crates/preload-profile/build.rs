//! Cargo names the library `libnumamma_preload_profile.so`; installed it is `libnumamma-profile.so`, and so is its SONAME.

fn main() {
    println!("cargo:rustc-link-arg-cdylib=-Wl,-soname,libnumamma-profile.so");
    // Hooks may be running in other threads while something dlcloses us: stay.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
