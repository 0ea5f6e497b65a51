//! Links `libskein.so` so that it is loaded at one address in every program, and begins before every other library: see `src/trap.rs`.

fn main() {
    // Far from all that Linux places by itself with ASLR off, and from the arena.
    println!("cargo:rustc-cdylib-link-arg=-Wl,--image-base=0x2f0000000000");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rerun-if-changed=build.rs");
}
