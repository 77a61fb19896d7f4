//! Epochs.

use super::*;

/// A value whose drop writes to memory that a reader may be reading: the model detects the conflict.
struct Watched {
    value: u32,
    freed: Arc<Memory>,
}

impl Watched {
    fn new(value: u32) -> Self {
        Self { value, freed: Arc::new(Memory::new(0)) }
    }

    fn look(&self) -> u32 {
        assert_eq!(self.freed.read(), 0, "looked at a freed value");
        self.value
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.freed.write(1);
    }
}

#[test]
fn keeps_what_a_pinned_reader_sees() {
    model(|| {
        let domain = Domain::new(1, 4);
        let table = Arc::new(Table::new(&domain, Watched::new(0)));
        let mut reader = domain.register("reader").unwrap();
        let looking = thread::spawn({
            let table = Arc::clone(&table);
            move || {
                for _ in 0..2 {
                    let guard = reader.pin();
                    let first = table.load(&guard);
                    let then = table.load(&guard);
                    assert!(first.look() <= then.look());
                    first.look();
                }
                reader.idle();
            }
        });
        table.publish(Watched::new(1)).unwrap();
        table.publish(Watched::new(2)).unwrap();
        domain.collect();
        looking.join().unwrap();
        assert_eq!(domain.collect(), 0, "an idle reader keeps nothing");
    });
}

#[test]
fn frees_while_the_reader_goes_on() {
    model(|| {
        let domain = Domain::new(1, 4);
        let table = Arc::new(Table::new(&domain, Watched::new(0)));
        let mut reader = domain.register("reader").unwrap();
        // Announced before the writer starts: the fast path of `pin` is used from the first iteration.
        reader.pin();
        let looking = thread::spawn({
            let table = Arc::clone(&table);
            move || {
                let guard = reader.pin();
                table.load(&guard).look();
                let guard = reader.pin();
                table.load(&guard).look();
                reader.idle();
                let guard = reader.pin();
                table.load(&guard).look();
            }
        });
        table.publish(Watched::new(1)).unwrap();
        domain.collect();
        looking.join().unwrap();
        assert_eq!(domain.collect(), 0, "a reader that is gone keeps nothing");
    });
}

#[test]
fn keeps_for_each_of_two_readers() {
    model(|| {
        let domain = Domain::new(2, 4);
        let table = Arc::new(Table::new(&domain, Watched::new(0)));
        let looking: Vec<_> = ["one", "two"]
            .map(|name| domain.register(name).unwrap())
            .into_iter()
            .map(|mut reader| {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    let guard = reader.pin();
                    table.load(&guard).look();
                })
            })
            .collect();
        table.publish(Watched::new(1)).unwrap();
        domain.collect();
        for reader in looking {
            reader.join().unwrap();
        }
        assert_eq!(domain.collect(), 0);
    });
}

#[test]
fn two_writers_take_turns_and_garbage_stays_bounded() {
    model(|| {
        let domain = Domain::new(1, 1);
        let table = Arc::new(Table::new(&domain, Watched::new(0)));
        let mut reader = domain.register("reader").unwrap();
        let writer = thread::spawn({
            let table = Arc::clone(&table);
            move || table.publish(Watched::new(1)).is_ok()
        });
        let guard = reader.pin();
        let seen = table.load(&guard);
        let published = table.publish(Watched::new(2)).is_ok();
        seen.look();
        assert!(writer.join().unwrap() || published, "the first is never refused");
        assert!(domain.collect() <= 1);
    });
}
