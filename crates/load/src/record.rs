//! The outcome of every request, and the parts from which every engine builds its result.
//!
//! ```text
//!  Pending   one per flow: which requests are open, since when      (engines in user space)
//!  Tally     one per thread: counts and three histograms            (engines in user space)
//!  Stopwatch the machine's CPU time over the window                 (all engines)
//!  Evidence  was the generator the limit?                           (all engines)
//!  Outcome   all of it together -> LoadResult                       (all engines)
//! ```

mod evidence;
mod outcome;
mod pending;
mod tally;

pub use evidence::{Evidence, ThreadTime};
pub use outcome::{Arrived, Outcome, Stopwatch};
pub(crate) use pending::{Answer, Pending, Seen};
pub(crate) use tally::{Tally, empty, latency};
