//! Duets: two servers measured at once, each with a half of the CPUs, its load and a link of its own.
//!
//! ```text
//!                       trial 1   trial 2   trial 3   trial 4
//!  side 0, CPUs 0-3        A         B         A         B        the sides swap after each trial
//!  side 1, CPUs 4-7        B         A         B         A
//!                       └── a block of A B B A ──┘
//! ```
//! A neighbour on the host, or a lower clock frequency, slows both at the same moment; what the sides differ by cancels
//! within a block. Trials in turn remove only what drifts evenly (duet benchmarking: Bulej and others 2020, arXiv
//! 2001.05811).

use std::collections::BTreeMap;

use udpath_host::cpus::Cpu;
use udpath_steer::CpuSet;

use crate::result::Sides;
use crate::statistics::ratio::Ratio;
use crate::statistics::{Bound, Comparison};

/// The two halves of the CPUs that may be used: whole cores, so that they share no siblings, and whole nodes where
/// those can be halved. With an odd number of cores the middle one stays free. None if a half would be empty.
#[must_use]
pub fn halves(cpus: &[Cpu], allowed: &CpuSet) -> Option<Sides> {
    let mut cores = BTreeMap::<_, Vec<u32>>::new();
    for cpu in cpus.iter().filter(|cpu| cpu.online && allowed.contains(cpu.number)) {
        // Where the kernel does not say, each CPU is a core.
        let core = cpu.core.map_or((1, cpu.number), |core| (0, core));
        cores.entry((cpu.node, cpu.package, core)).or_default().push(cpu.number);
    }
    let cores: Vec<Vec<u32>> = cores.into_values().collect();
    let half = cores.len() / 2;
    let side = |cores: &[Vec<u32>]| cores.iter().flatten().copied().collect::<Vec<u32>>();
    let (mut one, mut other) = (side(&cores[..half]), side(&cores[cores.len() - half..]));
    let equal = one.len().min(other.len());
    one.truncate(equal);
    other.truncate(equal);
    (equal > 0).then(|| [one.into_iter().collect(), other.into_iter().collect()])
}

/// What the trials of duets say if they are taken for trials in turn: of each trial one side only, A B B A.
///
/// ```text
///  trial      1     2     3     4
///  side 0     A     B                      two blocks of duets are one block in turn
///  side 1                 B     A
/// ```
/// Both intervals are of the same machine time, and each server was on both sides.
#[derive(Debug)]
pub(crate) struct InTurn {
    comparison: Comparison,
    /// A on side 0 and B on side 0, of a block whose partner is still missing.
    first: Option<(f64, f64)>,
}

impl InTurn {
    pub(crate) const fn new(bound: Bound) -> Self {
        Self { comparison: Comparison::new(bound), first: None }
    }

    /// Adds a block of duets: A on side 0, B on side 1; B on side 0, A on side 1.
    pub(crate) fn push_block(&mut self, [a0, b1, b0, a1]: [f64; 4]) {
        match self.first.take() {
            None => self.first = Some((a0, b0)),
            // An invalid rate was refused already when the duet's own block was added.
            Some((a, b)) => drop(self.comparison.push_block([a, b, b1, a1])),
        }
    }

    pub(crate) fn interval(&self) -> Option<Ratio> {
        self.comparison.interval()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPUs as (number, node, core).
    fn cpus(list: &[(u32, u32, u32)]) -> Vec<Cpu> {
        let cpu = |&(number, node, core): &(u32, u32, u32)| Cpu {
            number,
            online: true,
            node: Some(node),
            core: Some(core),
            package: Some(node),
            ..Cpu::default()
        };
        list.iter().map(cpu).collect()
    }

    fn split(list: &[(u32, u32, u32)], allowed: &str) -> Option<[String; 2]> {
        halves(&cpus(list), &allowed.parse().unwrap()).map(|sides| sides.map(|side| side.to_string()))
    }

    #[test]
    fn siblings_and_nodes_stay_together() {
        // Two nodes of two cores of two CPUs, numbered as usual: the siblings come after all cores.
        let list = [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1), (4, 0, 0), (5, 0, 1), (6, 1, 0), (7, 1, 1)];
        assert_eq!(split(&list, "0-7"), Some(["0-1,4-5".into(), "2-3,6-7".into()]));
        assert_eq!(split(&list, "0,4,1"), Some(["0".into(), "1".into()]), "core 0 has two, core 1 one");
        assert_eq!(split(&list, "0,4"), None, "one core");
        assert_eq!(split(&list, ""), None);
    }

    #[test]
    fn the_middle_core_stays_free() {
        assert_eq!(split(&[(0, 0, 0), (1, 0, 1), (2, 0, 2)], "0-2"), Some(["0".into(), "2".into()]));
    }

    #[test]
    fn cores_that_are_not_known_are_cpus() {
        let mut list = cpus(&[(0, 0, 0), (1, 0, 0)]);
        list.iter_mut().for_each(|cpu| cpu.core = None);
        assert!(halves(&list, &"0-1".parse().unwrap()).is_some());
        list[1].online = false;
        assert!(halves(&list, &"0-1".parse().unwrap()).is_none());
    }

    /// A neighbour that takes a third of both sides for a trial changes the ratio of trials in turn, and not that of
    /// duets.
    #[test]
    fn what_slows_both_sides_does_not_change_the_ratio_of_duets() {
        let bound = Bound::new(0.01, 100).unwrap();
        let (mut duets, mut in_turn) = (Comparison::new(bound), InTurn::new(bound));
        // B is a tenth faster; the trials' speed is that of the machine at the time.
        let speed = [1.0, 0.7, 1.0, 0.9, 1.1, 0.6, 1.0, 1.0, 0.8, 1.0, 0.7, 1.1];
        for pair in speed.chunks_exact(2) {
            let [one, two] = [pair[0], pair[1]].map(|speed| 1000.0 * speed);
            let block = [one, 1.1 * one, 1.1 * two, two];
            duets.push_block(block).unwrap();
            in_turn.push_block(block);
        }
        let (of_duets, of_turns) = (duets.interval().unwrap(), in_turn.interval().unwrap());
        assert!((of_duets.ratio - 1.1).abs() < 1e-9 && of_duets.high - of_duets.low < 1e-9);
        assert!(of_turns.high - of_turns.low > 0.1, "{of_turns:?}");
    }
}
