use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::*;

type TestResult = Result<(), Box<dyn std::error::Error>>;

/// Counts those alive, and is marked when dropped.
struct Watched {
    value: u64,
    mirror: u64,
    alive: Arc<AtomicUsize>,
}

impl Watched {
    fn new(value: u64, alive: &Arc<AtomicUsize>) -> Self {
        alive.fetch_add(1, Ordering::Relaxed);
        Self { value, mirror: !value, alive: Arc::clone(alive) }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // A reader that looks at it after this sees that it does not fit.
        self.mirror = self.value;
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

#[test]
fn a_pinned_reader_keeps_what_it_sees() -> TestResult {
    let alive = Arc::new(AtomicUsize::new(0));
    let domain = Domain::new(2, 8);
    let table = Table::new(&domain, Watched::new(1, &alive));
    let mut reader = domain.register("worker 0")?;

    let guard = reader.pin();
    let seen = table.load(&guard);
    table.publish(Watched::new(2, &alive))?;
    assert_eq!(domain.collect(), 1);
    assert_eq!((seen.value, seen.mirror), (1, !1));
    assert_eq!(table.load(&guard).value, 2, "a new load sees the new value");

    // The announcement outlives the guard; the next one is later, and frees.
    assert_eq!(domain.collect(), 1);
    reader.pin();
    assert_eq!(domain.collect(), 0);
    assert_eq!(alive.load(Ordering::Relaxed), 1);

    table.publish(Watched::new(3, &alive))?;
    reader.idle();
    assert_eq!(domain.collect(), 0, "an idle reader keeps nothing");
    drop(table);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    Ok(())
}

#[test]
fn garbage_is_bounded_and_the_stalled_reader_is_named() -> TestResult {
    let alive = Arc::new(AtomicUsize::new(0));
    let domain = Domain::new(3, 4);
    let table = Table::new(&domain, Watched::new(0, &alive));
    let mut good = domain.register("worker 0")?;
    let mut bad = domain.register("worker 1")?;
    bad.pin();
    for value in 1..=4 {
        good.pin();
        table.publish(Watched::new(value, &alive))?;
    }
    good.pin();
    let Err(refused) = table.publish(Watched::new(5, &alive)) else { return Err("published".into()) };
    assert_eq!(refused.stalled, Stalled { reader: "worker 1".into(), behind: 4, holds: 4 });
    assert_eq!(refused.value.value, 5, "the value comes back");
    assert!(refused.to_string().starts_with("cannot publish: reader 'worker 1' is 4 epochs behind"));
    assert_eq!(domain.stalled(), std::slice::from_ref(&refused.stalled), "the good reader is not blamed");
    assert_eq!(domain.flush(Duration::from_millis(1)), Err(refused.stalled));
    assert_eq!(table.load(&good.pin()).value, 4);

    bad.idle();
    table.publish(refused.value)?;
    good.idle();
    domain.flush(Duration::from_secs(60))?;
    assert_eq!(domain.stalled(), []);
    assert_eq!(alive.load(Ordering::Relaxed), 1);
    Ok(())
}

#[test]
fn readers_are_bounded_and_their_places_used_again() -> TestResult {
    let domain = Domain::new(1, 1);
    let reader = domain.register("worker 0")?;
    assert_eq!(reader.name(), "worker 0");
    let error = domain.register("worker 1").err();
    assert_eq!(error, Some(TooManyReaders { name: "worker 1".into(), readers: 1 }));
    drop(reader);
    assert_eq!(domain.register("worker 1")?.name(), "worker 1");
    Ok(())
}

#[test]
fn a_reader_that_is_dropped_while_announced_holds_nothing() -> TestResult {
    let domain = Domain::new(1, 1);
    let table = Table::new(&domain, 0);
    let mut reader = domain.register("worker 0")?;
    reader.pin();
    table.publish(1)?;
    assert!(table.publish(2).is_err());
    drop(reader);
    table.publish(2)?;
    Ok(())
}

#[test]
#[should_panic(expected = "another domain")]
fn a_guard_of_another_domain_is_rejected() {
    let (ours, theirs) = (Domain::new(1, 1), Domain::new(1, 1));
    let table = Table::new(&ours, 0);
    if let Ok(mut reader) = theirs.register("stranger") {
        table.load(&reader.pin());
    }
}

#[test]
fn what_waits_is_freed_with_the_domain() -> TestResult {
    let alive = Arc::new(AtomicUsize::new(0));
    let domain = Domain::new(1, 8);
    let table = Table::new(&domain, Watched::new(0, &alive));
    let mut reader = domain.register("worker 0")?;
    reader.pin();
    table.publish(Watched::new(1, &alive))?;
    drop((table, domain));
    assert_eq!(alive.load(Ordering::Relaxed), 1, "the reader holds the domain, and it the old value");
    drop(reader);
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    Ok(())
}

#[test]
fn readers_never_see_a_freed_value() -> TestResult {
    let alive = Arc::new(AtomicUsize::new(0));
    let domain = Domain::new(3, 16);
    let tables: [_; 2] = std::array::from_fn(|_| Table::new(&domain, Watched::new(0, &alive)));
    let stop = AtomicBool::new(false);
    let mut readers = Vec::new();
    for number in 0..3 {
        readers.push(domain.register(format!("worker {number}"))?);
    }
    std::thread::scope(|scope| {
        for (number, mut reader) in readers.into_iter().enumerate() {
            let (tables, stop) = (&tables, &stop);
            scope.spawn(move || {
                let mut seen = [0; 2];
                let mut turn = 0_usize;
                while !stop.load(Ordering::Relaxed) {
                    let guard = reader.pin();
                    for (table, seen) in tables.iter().zip(&mut seen) {
                        for _ in 0..32 {
                            let watched = table.load(&guard);
                            assert_eq!(watched.mirror, !watched.value, "looked at a freed value");
                            assert!(watched.value >= *seen, "went back in time");
                            *seen = watched.value;
                        }
                    }
                    turn += 1;
                    if turn.is_multiple_of(number + 2) {
                        reader.idle();
                        std::thread::yield_now();
                    }
                }
            });
        }
        let end = Instant::now() + Duration::from_millis(500);
        let mut value = 0;
        while Instant::now() < end {
            value += 1;
            for table in &tables {
                let mut next = Watched::new(value, &alive);
                while let Err(refused) = table.publish(next) {
                    next = refused.value;
                    std::thread::yield_now();
                }
            }
            assert!(alive.load(Ordering::Relaxed) <= 2 + 16 + 1, "more garbage than the bound");
        }
        stop.store(true, Ordering::Relaxed);
    });
    domain.flush(Duration::from_secs(60))?;
    assert_eq!(alive.load(Ordering::Relaxed), 2);
    Ok(())
}
