//! Values without private data: numbers with their units, and keywords of the kernel and of configuration formats. Any
//! other value may be a secret.

/// Units after a number.
const UNITS: [&str; 16] =
    ["", "k", "m", "g", "b", "kb", "mb", "gb", "bit", "kbit", "mbit", "gbit", "us", "ms", "s", "%"];

/// Words that are values. Sources: systemd.link(5), systemd.network(5), nm-settings-keyfile(5), the kernel's names of
/// qdiscs and of congestion control algorithms.
const WORDS: &[&str] = &[
    // Switches.
    "on",
    "off",
    "yes",
    "no",
    "y",
    "n",
    "true",
    "false",
    "auto",
    "none",
    "max",
    "unset",
    "default",
    "enabled",
    "disabled",
    "any",
    "all",
    // Links.
    "half",
    "full",
    "tp",
    "aui",
    "bnc",
    "mii",
    "fibre",
    "phy",
    "unicast",
    "multicast",
    "broadcast",
    "arp",
    "magic",
    "secureon",
    "ethernet",
    "ether",
    "802-3-ethernet",
    "infiniband",
    "bond",
    "bridge",
    "vlan",
    "team",
    "wifi",
    "wlan",
    "loopback",
    "veth",
    "tun",
    "dummy",
    "macvlan",
    "wireguard",
    "add",
    "change",
    "move",
    "remove",
    "net",
    // Qdiscs and congestion control algorithms.
    "root",
    "parent",
    "handle",
    "ingress",
    "clsact",
    "fq",
    "fq_codel",
    "codel",
    "pfifo",
    "pfifo_fast",
    "bfifo",
    "mq",
    "mqprio",
    "sfq",
    "cake",
    "noqueue",
    "red",
    "tbf",
    "htb",
    "hfsc",
    "prio",
    "etf",
    "taprio",
    "netem",
    "pie",
    "fq_pie",
    "limit",
    "flows",
    "quantum",
    "target",
    "interval",
    "ecn",
    "cubic",
    "bbr",
    "reno",
    "dctcp",
    "htcp",
    "vegas",
    "westwood",
    // Hash policies of bonds.
    "layer2",
    "layer23",
    "layer34",
    "encap23",
    "encap34",
    "layer2+3",
    "layer3+4",
    "encap2+3",
    "encap3+4",
    "vlan+srcmac",
];

/// Maximum length of driver, type and interface names; longer words may be something else.
const NAME: usize = 15;
/// Digits of the longest number (64 bits).
const DIGITS: usize = 20;

/// Does a value consist only of numbers and known words?
pub(super) fn is_plain(value: &str) -> bool {
    let parts = value.split(|c: char| c.is_ascii_whitespace() || matches!(c, ',' | ';' | ':' | '/' | '"'));
    parts
        .filter(|part| !part.is_empty())
        .all(|part| WORDS.contains(&part.to_ascii_lowercase().as_str()) || is_number(part))
}

/// A number, a range of CPUs or ports.
fn is_number(part: &str) -> bool {
    let one = |text: &str| {
        let text = text.strip_prefix('-').unwrap_or(text);
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
        let unit = text[digits.len()..].to_ascii_lowercase();
        let number = digits.strip_suffix('.').unwrap_or(digits);
        let whole =
            |text: &str| (1..=DIGITS).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        number.split('.').count() <= 2 && number.split('.').all(whole) && UNITS.contains(&unit.as_str())
    };
    match part.split_once('-').filter(|(first, _)| !first.is_empty()) {
        // Ranges are of CPUs, queues and ports: short numbers, not parts of an identifier.
        Some((first, last)) => [first, last].iter().all(|end| end.len() <= 5 && one(end)),
        None => one(part),
    }
}

/// A mask of CPUs or queues: hexadecimal words of 32 bits, at most 128 of them (4,096 CPUs).
pub(super) fn is_mask(value: &str) -> bool {
    let words: Vec<&str> = value.trim().split(',').collect();
    let word =
        |word: &&str| (1..=8).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    words.len() <= 128 && words.iter().all(word)
}

/// Names of drivers, types, interfaces: one short word, or several, with `*` as in patterns.
pub(super) fn is_name(value: &str) -> bool {
    let word = |word: &str| {
        word.len() <= NAME
            && word.bytes().all(|byte| {
                byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'*' | b'?' | b'.' | b'!' | b'@')
            })
    };
    value.split([' ', ',', ';', '|']).all(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_known_words_are_plain() {
        for value in [
            "1",
            "4096",
            "1 2\t3",
            "9000",
            "10Gb",
            "0-3,8",
            "yes",
            "max",
            "fq_codel",
            "root",
            "50us",
            "-1",
            "1.5",
            "",
            "32768 60999",
            "8001:",
        ] {
            assert!(is_plain(value), "{value}");
        }
        for value in [
            "hunter2",
            "tok_123",
            "00000000-11111111-22222222-33333333",
            "2001:db8::1",
            "s3cr3t",
            "deadbeef",
            "1.2.3.4",
            "https://a/b",
            "99999999999999999999999",
        ] {
            assert!(!is_plain(value), "{value}");
        }
        assert!(
            is_mask("ffffffff,0000000f")
                && is_mask("f")
                && !is_mask("deadbeefcafe")
                && !is_mask("x")
                && !is_mask("")
        );
        assert!(
            is_name("eth*")
                && is_name("ens1f0 ixgbe")
                && !is_name("a-token-of-some-length")
                && !is_name("a/b")
        );
    }
}
