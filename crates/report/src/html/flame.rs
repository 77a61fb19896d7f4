//! Shared parts of pages with a flame graph: the script, and the policy that allows only this script.

/// The script, inserted unchanged between its tags.
pub(super) const SCRIPT: &str = include_str!("../../templates/flame.js");

/// The script's digest for the page's Content-Security-Policy. A test compares it; a browser that computes another one
/// does not run the script, but still shows the graph.
pub(super) const SCRIPT_HASH: &str = "sha256-LIjqCT6NizQs103Zs8gq5FhyYL0T4kRGYGBMMppcbfw=";

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    #[test]
    fn the_policy_names_this_script() {
        let mut child = Command::new("sha256sum")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("coreutils");
        child.stdin.take().unwrap().write_all(SCRIPT.as_bytes()).unwrap();
        let printed = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
        let hex = printed.split(' ').next().unwrap();
        let digest: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        assert_eq!(
            SCRIPT_HASH,
            format!("sha256-{}", base64(&digest)),
            "the script was changed: write this digest"
        );
    }

    /// RFC 4648, section 4.
    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut out = String::new();
        for three in bytes.chunks(3) {
            let word =
                three.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
            for digit in 0..4 {
                let sextet = (word >> (18 - 6 * digit)) as usize & 63;
                out.push(if digit <= three.len() { char::from(DIGITS[sextet]) } else { '=' });
            }
        }
        out
    }
}
