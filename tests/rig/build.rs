//! Compiles the BPF programs used only by tests and benches.

#[path = "../../crates/bpf/compile.rs"]
mod compile;

use std::path::Path;

fn main() {
    compile::compile(
        &["accounting", "answer", "answer_dns", "answer_ntp", "bind_witness", "impair", "wire"],
        Path::new("bpf"),
        Path::new("../../bpf"),
    );
}
