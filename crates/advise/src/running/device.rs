//! What a network card offers a running server: channels, rings, interrupt moderation. Most of it resets the link.

use udpath_host::interfaces::Interface;

use super::group::{Group, TIMERS};

/// Descriptors of a receive ring that stays in a core's cache, with 2 KiB of each buffer: 1 MiB. Fewer: bursts are lost
/// while the CPU does something else. More: each packet's buffer comes from memory.
const CACHED_RING: u32 = 512;

/// The groups of one interface.
pub(super) fn offers(device: &Interface, cpus: usize) -> Vec<Group> {
    channels(device, cpus).into_iter().chain(rings(device)).chain(moderation(device)).collect()
}

/// A channel for each CPU.
fn channels(device: &Interface, cpus: usize) -> Option<Group> {
    let channels = &device.channels.as_ref()?.value;
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    let more = |kind: &str, now: Option<u32>, most: Option<u32>| {
        let wanted = most?.min(cpus);
        (now? < wanted).then(|| format!("{}:channels/{kind}={wanted}", device.name))
    };
    let (now, most) = (&channels.now, &channels.max);
    let requests = [
        more("combined", now.combined, most.combined),
        more("rx", now.rx, most.rx),
        more("tx", now.tx, most.tx),
    ];
    let requests: Vec<String> = requests.into_iter().flatten().collect();
    (!requests.is_empty()).then(|| Group::new("channels", "a receive queue for each CPU", requests))
}

/// The longest rings, and short ones.
fn rings(device: &Interface) -> Vec<Group> {
    let Some(rings) = device.rings.as_ref().map(|rings| &rings.value) else { return Vec::new() };
    let set = |kind: &str, size: u32| format!("{}:ring/{kind}={size}", device.name);
    let longer = |kind: &str, now: Option<u32>, most: Option<u32>| {
        most.filter(|most| now.is_some_and(|now| now < *most)).map(|most| set(kind, most))
    };
    let longest = [longer("rx", rings.rx, rings.rx_max), longer("tx", rings.tx, rings.tx_max)];
    let longest: Vec<String> = longest.into_iter().flatten().collect();
    let cached = rings.rx.filter(|now| *now > CACHED_RING).map(|_| vec![set("rx", CACHED_RING)]);
    let longest = (!longest.is_empty()).then_some(longest);
    let groups = [
        longest.map(|requests| Group::new("longest-rings", "room for longer bursts in the card", requests)),
        cached.map(|requests| Group::new("short-ring", "buffers that stay in the cache", requests)),
    ];
    groups.into_iter().flatten().collect()
}

/// Fixed times between interrupts, other than now.
fn moderation(device: &Interface) -> Vec<Group> {
    let Some(now) = device.coalescing.as_ref().map(|now| &now.value) else { return Vec::new() };
    let Some(time) = now.get("rx-usecs") else { return Vec::new() };
    let adaptive = now.get("adaptive-rx").is_some_and(|on| *on > 0);
    let others = TIMERS.into_iter().filter(|timer| adaptive || timer != time);
    let group = |timer: u32| {
        let off = adaptive.then(|| format!("{}:coalesce/adaptive-rx=off", device.name));
        let fixed = format!("{}:coalesce/rx-usecs={timer}", device.name);
        let what = format!("an interrupt every {timer} us at most");
        Group::new(&format!("moderation-{timer}us"), what, off.into_iter().chain([fixed]).collect())
    };
    others.map(group).collect()
}

#[cfg(test)]
mod tests {
    use udpath_host::interfaces::{ChannelCounts, Channels, Coalescing, Rings};

    use super::*;
    use crate::rules::testing::{Host, fact};

    fn device() -> Interface {
        Host::with_queues(1).snapshot.interfaces.remove(0)
    }

    fn requests(device: &Interface, cpus: usize) -> Vec<(String, Vec<String>)> {
        offers(device, cpus).into_iter().map(|group| (group.name, group.requests)).collect()
    }

    #[test]
    fn a_device_that_reports_nothing_offers_nothing() {
        let mut device = device();
        (device.channels, device.rings, device.coalescing) = (None, None, None);
        assert_eq!(requests(&device, 8), []);
    }

    #[test]
    fn channels_up_to_the_cpus() {
        let mut device = device();
        (device.rings, device.coalescing) = (None, None);
        let counts = |combined| ChannelCounts { combined: Some(combined), ..ChannelCounts::default() };
        device.channels = Some(fact(Channels { now: counts(2), max: counts(64) }));
        let wanted = vec!["eth0:channels/combined=8".to_owned()];
        assert_eq!(requests(&device, 8), [("channels".to_owned(), wanted)]);
        assert_eq!(requests(&device, 2), []);
        // As a veth pair has them.
        let counts = |each| ChannelCounts { rx: Some(each), tx: Some(each), ..ChannelCounts::default() };
        device.channels = Some(fact(Channels { now: counts(1), max: counts(2) }));
        let wanted = ["eth0:channels/rx=2", "eth0:channels/tx=2"].map(str::to_owned).to_vec();
        assert_eq!(requests(&device, 8), [("channels".to_owned(), wanted)]);
    }

    #[test]
    fn rings_longer_and_shorter() {
        let mut device = device();
        (device.channels, device.coalescing) = (None, None);
        let rings = |rx| Rings {
            rx: Some(rx),
            rx_max: Some(4096),
            tx: Some(4096),
            tx_max: Some(4096),
            ..Rings::default()
        };
        device.rings = Some(fact(rings(1024)));
        let group = |name: &str, request: &str| (name.to_owned(), vec![request.to_owned()]);
        let (longest, short) =
            (group("longest-rings", "eth0:ring/rx=4096"), group("short-ring", "eth0:ring/rx=512"));
        assert_eq!(requests(&device, 8), [longest.clone(), short.clone()]);
        device.rings = Some(fact(rings(256)));
        assert_eq!(requests(&device, 8), [longest]);
        device.rings = Some(fact(rings(4096)));
        assert_eq!(requests(&device, 8), [short]);
    }

    #[test]
    fn moderation_by_fixed_times() {
        let mut device = device();
        (device.channels, device.rings) = (None, None);
        let coalescing =
            |adaptive| Coalescing::from([("rx-usecs".into(), 75), ("adaptive-rx".into(), adaptive)]);
        device.coalescing = Some(fact(coalescing(0)));
        let fixed = |time| format!("eth0:coalesce/rx-usecs={time}");
        assert_eq!(requests(&device, 8), [("moderation-20us".to_owned(), vec![fixed(20)])]);
        device.coalescing = Some(fact(coalescing(1)));
        let off = || "eth0:coalesce/adaptive-rx=off".to_owned();
        let group = |time: u32| (format!("moderation-{time}us"), vec![off(), fixed(time)]);
        assert_eq!(requests(&device, 8), [group(75), group(20)]);
    }
}
