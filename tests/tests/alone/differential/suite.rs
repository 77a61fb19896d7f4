//! Every kind of frame, in every mode of xdp.

use udpath_rig::campaign::record;

use super::frames::kinds;
use super::{Compared, ends, lab, replies};

/// Arguments of xdp, one set per variant.
const VARIANTS: [&[&str]; 6] = [
    &[],
    &["--steer"],
    &["--steer", "--flow-limit"],
    &["--no-live-frames"],
    &["--busy-poll"],
    &["--steer", "--busy-poll", "--no-live-frames"],
];

/// The kernel must answer at least one kind in three, or the comparison shows little.
const ANSWERED: usize = 3;

#[test]
fn every_kind_of_frame_is_answered_as_by_kernel_sockets() {
    udpath_lab::needs_root!();
    let _turn = udpath_rig::alone();
    let lab = lab("frame-suite");
    let ends = ends(&lab);
    let requests = kinds::all(&ends);
    let (kernel, _) = replies(&lab, "reuseport", &[], &requests);
    assert!(kernel.len() > requests.len() / ANSWERED, "{} of {}", kernel.len(), requests.len());
    let (mut wrong, mut documented) = (Vec::new(), 0);
    for variant in VARIANTS {
        let (xdp, answered) = replies(&lab, "xdp", variant, &requests);
        assert!(
            answered > requests.len() as u64 / 8,
            "{variant:?}: the fast path was hardly asked: {answered}"
        );
        let compared = Compared::of(&ends, &requests, &kernel, &xdp);
        println!("{variant:?}: {answered} answered by the fast path, {:?}", compared.differences);
        documented += compared.differences.values().sum::<usize>();
        wrong.extend(compared.wrong.into_iter().map(|what| format!("{variant:?}: {what}")));
    }
    let figure = format!(
        "{} kinds against kernel sockets in {} variants of xdp, {} differences, {documented} documented ones",
        requests.len(),
        VARIANTS.len(),
        wrong.len()
    );
    record("frames compared", &figure);
    assert!(wrong.is_empty(), "{} kinds differ:\n{}", wrong.len(), wrong.join("\n"));
    lab.down().unwrap();
}
