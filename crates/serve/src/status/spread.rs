//! Detects that datagrams for `percpu` all arrive on one CPU.

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SpreadMonitor {
    before: Vec<u64>,
    warning: Option<String>,
}

/// Minimum datagrams in a window before it is evaluated. Fewer could be one client's burst; with more, a service with
/// little traffic would never be evaluated.
const MIN_WINDOW: u64 = 2_000;

/// Share of one worker above which the traffic counts as arriving on one CPU. The rest comes from other CPUs by chance
/// (a local health check, a moved interrupt). A lower threshold would warn although the work is spread well enough.
const SKEW_THRESHOLD: f64 = 0.95;

impl SpreadMonitor {
    /// Evaluates the received counts and CPUs by worker. Returns a warning until a later window is better.
    pub(crate) fn observe(&mut self, received: &[u64], cpus: &[u32]) -> Option<&str> {
        if self.before.len() != received.len() {
            self.before = vec![0; received.len()];
        }
        let window: Vec<u64> = received.iter().zip(&self.before).map(|(now, then)| now - then).collect();
        let total: u64 = window.iter().sum();
        if received.len() > 1 && total >= MIN_WINDOW {
            self.before = received.to_vec();
            let busiest = (0..window.len()).max_by_key(|i| window[*i]).unwrap_or(0);
            let share = window[busiest] as f64 / total as f64;
            self.warning = (share >= SKEW_THRESHOLD).then(|| {
                format!(
                    "percpu has nothing to spread: {:.0} % of {total} datagrams arrived on CPU {}; spread the \
                     receive queues over the CPUs (RSS, RPS, the senders' XPS) or serve with --io reuseport",
                    share * 100.0,
                    cpus.get(busiest).copied().unwrap_or(0),
                )
            });
        }
        self.warning.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_traffic_on_one_cpu_is_noticed_and_forgotten_again() {
        let mut monitor = SpreadMonitor::default();
        let cpus = [4, 5];
        assert_eq!(monitor.observe(&[1_000, 0], &cpus), None, "too few to evaluate");
        assert!(monitor.observe(&[3, 3_000], &cpus).unwrap().contains("CPU 5"));
        assert!(monitor.observe(&[4, 3_001], &cpus).is_some(), "still the last evaluation");
        assert_eq!(monitor.observe(&[1_500, 4_500], &cpus), None);
    }

    #[test]
    fn one_worker_cannot_be_uneven() {
        assert_eq!(SpreadMonitor::default().observe(&[1_000_000], &[0]), None);
    }
}
