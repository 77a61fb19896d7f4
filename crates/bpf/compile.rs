//! Compiles BPF programs with clang: shared by the build scripts of this crate and of `tests/rig`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles each of `programs`, `sources/NAME.bpf.c`, to `NAME.o` in the output folder of the crate being built.
/// `headers` is where `frame.h` is.
pub(crate) fn compile(programs: &[&str], sources: &Path, headers: &Path) {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for folder in [sources, headers] {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    // Debian keeps asm/types.h in a per-architecture folder that -target bpf does not search. It is that of the machine
    // that builds: its integers and byte order are those of BPF, whatever the program is built for.
    let host = env::var("HOST").expect("cargo sets the host");
    let (arch, _) = host.split_once('-').expect("a target begins with its architecture");
    for program in programs {
        let source = sources.join(format!("{program}.bpf.c"));
        let object = out.join(format!("{program}.o"));
        let done = Command::new(&clang)
            .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"])
            .arg("-Wno-unused-parameter")
            // The object, which the program contains, does not name the folder of this build.
            .arg("-ffile-compilation-dir=.")
            .arg(format!("-I/usr/include/{arch}-linux-gnu"))
            .arg(format!("-I{}", headers.display()))
            .arg("-c")
            .arg(&source)
            .arg("-o")
            .arg(&object)
            .status();
        match done {
            Ok(status) if status.success() => {}
            Ok(status) => panic!("{clang} could not compile {} ({status})", source.display()),
            Err(error) => panic!(
                "cannot run {clang} to compile {}: {error}; `make setup` installs clang and the BPF headers",
                source.display()
            ),
        }
    }
}
