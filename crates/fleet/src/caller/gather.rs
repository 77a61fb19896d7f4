//! The first part of a call: agents that offer themselves and answer, and how far their clocks are ahead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::offers::Offers;
use super::{Agent, Caller, Error, Event, POLL_INTERVAL};
use crate::clock::{self, Offset};
use crate::message::{self, FromAgent, Said, ToAgent};

/// Exchanges of time with each agent; the one with the least delay counts. Fewer: a busy moment is in the offset.
const EXCHANGES: u32 = 8;
/// Exchanges without an answer after which an agent's clock is taken as measured until then.
const MISSES: u32 = 2;
/// How long all of these exchanges may take. Longer: agents that answer slowly, or falsely, delay the load. Shorter: of
/// a thousand agents some have only their first exchange.
const CLOCKS: Duration = Duration::from_secs(10);
/// How long an exchange may take.
const EXCHANGE_TIMEOUT: Duration = Duration::from_millis(500);
/// Time between two announcements, while agents are being gathered.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);

impl Caller<'_> {
    pub(super) fn gather(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        let announcement = ToAgent::Announce {
            run: self.run.clone(),
            version: message::VERSION,
            order: Box::new(self.call.order.clone()),
        };
        let (until, mut announce) = (Instant::now() + self.call.gather, Instant::now());
        let mut offers = Offers::default();
        while Instant::now() < until && !stop.load(Ordering::Relaxed) {
            if Instant::now() >= announce {
                self.to_all(&announcement);
                announce += ANNOUNCE_INTERVAL;
            }
            if let Some(message) = self.hear(POLL_INTERVAL) {
                self.gathered(message, &mut offers)?;
            }
            if self.call.agents.is_some_and(|wanted| self.agents.len() >= wanted as usize) {
                return Ok(());
            }
        }
        match self.call.agents {
            None if !self.agents.is_empty() => Ok(()),
            wanted => Err(Error::TooFew {
                have: self.agents.len(),
                wanted: wanted.unwrap_or(1),
                fleet: self.call.fleet.clone(),
                why: offers.why(),
            }),
        }
    }

    /// An agent takes part once it has offered itself and answered.
    fn gathered(&mut self, (message, at): (FromAgent, u64), offers: &mut Offers) -> Result<(), Error> {
        let FromAgent { version, agent: name, instance, said } = message;
        let refused = match said {
            Said::Refused(why) => Some(why),
            Said::Offer if version != message::VERSION => Some(message::mismatch(version)),
            Said::Offer => {
                let now = clock::now();
                match self.agents.get(&name) {
                    Some(agent) if agent.instance != instance => return Err(Error::SameName(name)),
                    Some(_) => {}
                    None if offers.offered(&name, instance, now)? => {
                        self.to(&name, &ToAgent::Clock { run: self.run.clone(), now });
                    }
                    None => {}
                }
                None
            }
            Said::Clock { asked, received, answered } => {
                let offset = Offset::new(asked, received, answered, at);
                if let Some(offset) = offset.filter(|_| offers.answered(&name, instance, asked)) {
                    self.agents.insert(name.clone(), Agent::new(instance, offset));
                }
                None
            }
            _ => None,
        };
        if let Some(why) = refused.and_then(|why| offers.refused(&name, why)) {
            (self.inform)(Event::Refused(name, why));
        }
        Ok(())
    }

    /// Measures more exactly how far each agent's clock is ahead.
    pub(super) fn compare_clocks(&mut self) {
        let until = Instant::now() + CLOCKS;
        let names: Vec<String> = self.agents.keys().cloned().collect();
        for name in names {
            let mut misses = 0;
            for _ in 1..EXCHANGES {
                if misses == MISSES || Instant::now() >= until {
                    break;
                }
                let measured = self.exchange(&name);
                match (measured, self.agents.get_mut(&name)) {
                    (Some(measured), Some(agent)) => agent.offset = Some(measured.better(agent.offset)),
                    _ => misses += 1,
                }
            }
        }
    }

    fn exchange(&mut self, name: &str) -> Option<Offset> {
        let asked = clock::now();
        self.to(name, &ToAgent::Clock { run: self.run.clone(), now: asked });
        let until = Instant::now() + EXCHANGE_TIMEOUT;
        while Instant::now() < until {
            let Some((FromAgent { agent, said, .. }, heard)) = self.hear(POLL_INTERVAL) else { continue };
            if let Said::Clock { asked: of, received, answered } = said
                && (agent.as_str(), of) == (name, asked)
            {
                return Offset::new(asked, received, answered, heard);
            }
        }
        None
    }
}
