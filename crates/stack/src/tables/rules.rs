//! Detects IPv4 policy routing rules beyond the three that every network namespace starts with.

use std::io;

use udpath_netlink::Rtnetlink;

/// The rules of a new namespace: for the tables local, main and default.
const USUAL: usize = 3;

/// Whether the calling thread's network namespace has IPv4 rules (`ip rule`) other than the usual ones. Opens a
/// socket and queries the kernel: intended to be called about once a second.
///
/// # Errors
/// The kernel's rules cannot be listed.
pub fn has_policy_rules() -> io::Result<bool> {
    Ok(Rtnetlink::open()?.count_rules(libc::AF_INET as u8)? != USUAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers() {
        has_policy_rules().unwrap();
    }
}
