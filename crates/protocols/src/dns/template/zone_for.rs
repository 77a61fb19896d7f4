//! The zone of a server that is made for a load: every name that the load asks for, with an A and an AAAA record.

use std::fmt::Write as _;

use crate::{OptionError, Options};

use super::generate::PLACE;
use super::options::{NAME, NAMES, QUERIES, invalid, names};

/// Most names of such a zone. More: making and loading it takes longer than most loads. Fewer: a server's caches hold
/// it.
const MAX_NAMES: usize = 1_000_000;
/// Addresses of 198.18.0.0/15, which are reserved for benchmarks (RFC 2544, C.2.2).
const ADDRESSES: usize = 1 << 17;

/// The master file of a zone with the names of these options of a load.
pub(in crate::dns) fn zone_for(load: &Options) -> Result<String, OptionError> {
    if let Some(path) = load.paths(&QUERIES).last() {
        let reason = "a server made for the load has generated names: use --name, or name a server";
        return Err(invalid(&QUERIES, &path.display(), reason));
    }
    let names = names(load)?;
    if names.count > MAX_NAMES {
        let reason =
            format!("a server made for the load has at most {MAX_NAMES}: ask for fewer, or name a server");
        return Err(invalid(&NAMES, &names.count, reason));
    }
    let pattern = names.pattern.strip_suffix('.').unwrap_or(&names.pattern);
    let origin = origin(pattern).map_err(|reason| invalid(&NAME, &names.pattern, reason))?;
    let mut zone =
        format!("$ORIGIN {origin}.\n$TTL 60\n@ SOA ns host 1 60 60 60 60\n@ NS ns\nns A 192.0.2.53\n");
    for number in 0..names.count {
        let (name, address) = (pattern.replacen(PLACE, &number.to_string(), 1), number % ADDRESSES);
        let [_, high, mid, low] = (address as u32).to_be_bytes();
        // A string takes all.
        let _ = writeln!(zone, "{name}. A 198.{}.{mid}.{low}\n{name}. AAAA 2001:db8::{address:x}", 18 + high);
    }
    Ok(zone)
}

/// The zone's name: what follows the label with the number; the whole name without a number.
fn origin(pattern: &str) -> Result<&str, String> {
    // Others have a meaning in master files.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if let Some(other) = pattern.replacen(PLACE, "0", 1).chars().find(|c| !plain(*c)) {
        let other = other.escape_debug();
        return Err(format!(
            "a server made for the load has names of letters, digits, - and _, not `{other}`"
        ));
    }
    let origin = match pattern.split_once(PLACE) {
        None => pattern,
        Some((_, rest)) => rest.split_once('.').map_or("", |(_, origin)| origin),
    };
    if origin.is_empty() {
        return Err(
            "a server made for the load needs the name of its zone behind the number: use a name such as \
                    host{}.example.org"
                .into(),
        );
    }
    Ok(origin)
}

#[cfg(test)]
mod tests {
    use udpath_load::template::{Judgement, Protocol as _};
    use udpath_serve::serve_once;

    use super::super::DnsLoad;
    use super::*;
    use crate::OptionSpec;
    use crate::dns::{Dns, DnsConfig};

    fn options(given: &[(&OptionSpec, &str)]) -> Options {
        let mut options = Options::default();
        given.iter().for_each(|(spec, value)| options.push(spec, value));
        options
    }

    #[test]
    fn a_server_with_the_zone_answers_every_query() {
        let [client, server] = ["192.0.2.77:4000", "192.0.2.53:53"].map(|address| address.parse().unwrap());
        for given in [
            &[][..],
            &[(&NAME, "Host{}.Example.org"), (&NAMES, "300")],
            &[(&NAME, "a.b{}_c.example."), (&NAMES, "20")],
            &[(&NAME, "org"), (&NAMES, "1")],
        ] {
            let given = options(given);
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(&file, zone_for(&given).unwrap()).unwrap();
            let config = DnsConfig { zones: vec![file.path().into()], ..DnsConfig::default() };
            let mut dns = Dns::load(&config).unwrap();
            let load = DnsLoad::from_options(7, &given).unwrap();
            let mut template = load.template();
            for seq in 0..load.chosen.queries.count() as u64 {
                let mut query = [0; 300];
                let len = template.write(0, seq, &mut query);
                let (_, reply) = serve_once(&mut dns, &query[..len], client, server);
                assert_eq!(template.check(0, &reply), Judgement::Valid { seq }, "{given:?}");
                assert_eq!((reply[3] & 0x0f, reply[7]), (0, 1), "one address: {given:?}");
            }
        }
    }

    #[test]
    fn what_has_no_such_zone_is_refused() {
        for (given, reason) in [
            (&[(&QUERIES, "q")][..], "invalid --queries q: a server made for the load has generated names"),
            (
                &[(&NAME, "h{}.org"), (&NAMES, "1000001")],
                "invalid --names 1000001: a server made for the load has at most",
            ),
            (&[(&NAME, "h{}")], "invalid --name h{}: a server made for the load needs the name of its zone"),
            (&[(&NAME, ".")], "invalid --name .: a server made for the load needs the name of its zone"),
            (
                &[(&NAME, r"a\.b.org")],
                r"invalid --name a\.b.org: a server made for the load has names of letters",
            ),
            (
                &[(&NAME, "a;b.org")],
                "invalid --name a;b.org: a server made for the load has names of letters",
            ),
        ] {
            let error = zone_for(&options(given)).unwrap_err().to_string();
            assert!(error.starts_with(reason), "{error}");
        }
    }
}
