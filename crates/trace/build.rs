//! Cargo names the library `libnumamma_trace.so`; programs that gcc compiled with -fsanitize=thread look for
//! `libtsan.so.2` (gcc 11 to 14).

fn main() {
    println!("cargo:rustc-link-arg-cdylib=-Wl,-soname,libtsan.so.2");
    // Threads have pointers to its data, and a destructor of thread-specific data is in it.
    println!("cargo:rustc-link-arg-cdylib=-Wl,-z,nodelete");
    // See forced_unwind.rs of the hook crate.
    println!("cargo:rustc-link-arg-cdylib=-Wl,--wrap=rust_eh_personality");
    println!("cargo:rerun-if-changed=build.rs");
}
