//! Changes of a device: they take effect, and a refusal has a reason. Needs root.

use udpath_host::Source;
use udpath_host::source::Folder;
use udpath_lab::{Lab, LabBuilder, LinkSpec};
use udpath_netlink::ethtool::channels::ChannelCounts;
use udpath_tune::device::DeviceWriter;

fn pair(name: &str) -> Lab {
    let spec = LinkSpec::with_queues(4);
    LabBuilder::new(name).machine("client").machine("server").link("client", "server", &spec).up().unwrap()
}

#[test]
fn settings_take_effect_and_errors_have_a_reason() {
    udpath_lab::needs_root!();
    let lab = pair("t-tune-device");
    let (bad, bad_name, channels, features) = lab
        .machine("server")
        .unwrap()
        .run(|| {
            let mut writer = DeviceWriter::open();
            writer.set_features("eth0", &[("rx-gro", true), ("tx-scatter-gather", false)]).unwrap();
            let fewer = ChannelCounts { rx: Some(2), tx: Some(3), ..ChannelCounts::default() };
            writer.set_channels("eth0", &fewer).unwrap();
            let many = ChannelCounts { rx: Some(99), ..ChannelCounts::default() };
            let source: &dyn Source = &Folder::live();
            (
                writer.set_channels("eth0", &many).unwrap_err(),
                writer.set_features("eth0", &[("no-such", true)]).unwrap_err(),
                source.channels("eth0").unwrap().value.now,
                source.features("eth0").unwrap().value,
            )
        })
        .unwrap();
    assert_eq!(bad.what, "set the channels of eth0");
    assert_eq!(bad.errno, Some(22));
    assert!(bad.to_string().contains("requested channel count exceeds maximum"), "{bad}");
    assert!(
        bad_name.to_string().starts_with("cannot set the offloads of eth0: bit name not found"),
        "{bad_name}"
    );
    assert_eq!((channels.rx, channels.tx), (Some(2), Some(3)));
    assert!(features["rx-gro"].active && !features["tx-scatter-gather"].active);
    lab.down().unwrap();
}

#[test]
fn an_unprivileged_user_is_refused() {
    udpath_lab::needs_root!();
    let lab = pair("t-tune-nobody");
    let refused = lab
        .machine("server")
        .unwrap()
        .run(|| {
            use rustix::thread::{Gid, Uid};
            let (nobody, nogroup) = (Uid::from_raw(65534), Gid::from_raw(65534));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(nogroup, nogroup, nogroup).unwrap();
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let fewer = ChannelCounts { rx: Some(1), ..ChannelCounts::default() };
            DeviceWriter::open().set_channels("eth0", &fewer).unwrap_err()
        })
        .unwrap();
    assert_eq!(refused.to_string(), "cannot set the channels of eth0: Operation not permitted (os error 1)");
    lab.down().unwrap();
}
