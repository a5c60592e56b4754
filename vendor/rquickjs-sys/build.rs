//! Compiles QuickJS and names the bindings of the target.

use std::{env, fs, path::Path};

fn main() {
    let target = env::var("TARGET").expect("cargo sets it");
    let out = env::var("OUT_DIR").expect("cargo sets it");
    assert!(Path::new("src/bindings").join(format!("{target}.rs")).exists(), "no bindings for {target}");
    let named = format!("macro_rules! bindings_env {{ (\"TARGET\") => {{ \"{target}\" }}; }}");
    fs::write(Path::new(&out).join("bindings.rs"), named).expect("OUT_DIR can be written");
    println!("cargo:rerun-if-changed=quickjs");
    println!("cargo:rerun-if-changed=src/bindings");
    cc::Build::new()
        .extra_warnings(false)
        .flag_if_supported("-Wno-implicit-const-int-float-conversion")
        .define("_GNU_SOURCE", None)
        .files(["libregexp.c", "libunicode.c", "quickjs.c", "dtoa.c"].map(|file| format!("quickjs/{file}")))
        .compile("quickjs");
}
