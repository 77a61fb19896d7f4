//! The list of interfaces: from rtnetlink, or from sysfs where there is none.

use crate::client::netdev::Counters;
use crate::client::route::Link;
use crate::text::{noted, one, optional, words};
use crate::{Missing, Source};

const NET: &str = "/sys/class/net";
/// `ARPHRD_LOOPBACK` of linux/if_arp.h, `IFF_UP` of linux/if.h.
const LOOPBACK: u32 = 772;
const UP: u32 = 1;

/// All interfaces, by index.
pub(crate) fn read(source: &dyn Source, missing: &mut Vec<Missing>) -> Vec<Link> {
    let mut links = source.links().map_or_else(|_| from_files(source, missing), |links| links.value);
    links.sort_by_key(|link| link.index);
    links
}

/// The same from sysfs: the kind of a virtual interface only where a file reveals it, no XDP programs.
fn from_files(source: &dyn Source, missing: &mut Vec<Missing>) -> Vec<Link> {
    let Some(names) = noted(missing, "interfaces", NET, source.names(NET)) else {
        return Vec::new();
    };
    let mut links = Vec::new();
    for name in names {
        let what = format!("interface {name}");
        let path = |file: &str| format!("{NET}/{name}/{file}");
        let mut number = |file: &str| optional::<u32>(source, missing, &what, &path(file), one);
        // /sys/class/net has entries that are not interfaces, such as bonding_masters.
        let Some(index) = number("ifindex") else { continue };
        let kind = number("type");
        let (mtu, tx_queue_len) = (number("mtu").unwrap_or(0), number("tx_queue_len").unwrap_or(0));
        let carrier = number("carrier").map(|carrier| carrier != 0);
        let below = number("iflink").filter(|below| *below != index && *below != 0);
        let flags = optional(source, missing, &what, &path("flags"), words).unwrap_or_default();
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(0);
        let address = optional(source, missing, &what, &path("address"), words);
        let there = |file: &str| source.names(&path(file)).is_ok();
        links.push(Link {
            index,
            kind: [("bonding", "bond"), ("bridge", "bridge")]
                .into_iter()
                .find_map(|(file, kind)| there(file).then(|| kind.to_owned())),
            loopback: kind == Some(LOOPBACK),
            up: flags & UP != 0,
            carrier,
            mtu,
            tx_queue_len,
            address,
            master: master(source, &name),
            link: below,
            name,
            ..Link::default()
        });
    }
    links
}

/// The index of the interface that `master` links to.
fn master(source: &dyn Source, name: &str) -> Option<u32> {
    let target = source.target(&format!("{NET}/{name}/master")).ok()?;
    let (_, master) = target.rsplit_once('/')?;
    crate::source::number(source, &format!("{NET}/{master}/ifindex")).ok()
}

/// The counters of an interface, file by file: if rtnetlink does not report them.
pub(crate) fn statistics(source: &dyn Source, name: &str) -> Counters {
    let directory = format!("/sys/class/net/{name}/statistics");
    let names = source.names(&directory).unwrap_or_default();
    let count = |name: String| {
        let value = crate::source::number(source, &format!("{directory}/{name}")).ok()?;
        Some((name, value))
    };
    names.into_iter().filter_map(count).collect()
}
