//! Compiles `bpf/*.bpf.c` with clang. The objects are embedded in the library, so the program needs neither clang nor
//! any file at run time.

mod compile;

use std::path::Path;

const PROGRAMS: [&str; 16] = [
    "closed_loop",
    "delays",
    "drops",
    "forward",
    "live",
    "locks",
    "mixed_loop",
    "pass",
    "policy",
    "prebuilt_loop",
    "reuseport",
    "selection",
    "served",
    "softirqs",
    "take",
    "watch",
];

fn main() {
    let sources = Path::new("bpf");
    compile::compile(&PROGRAMS, sources, sources);
}
