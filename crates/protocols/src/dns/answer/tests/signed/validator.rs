//! Looks at a reply as a validating resolver does (RFC 4035, 5; RFC 5155, 8): every set must have its signature, and
//! what the naive search says does not exist must follow from the NSEC or NSEC3 records of the reply alone.

use super::*;

/// An NSEC or NSEC3 record: owner or its hash, what is next, types; whether it leaves delegations out.
struct Denial {
    owner: String,
    next: String,
    types: BTreeSet<String>,
    opt_out: bool,
}

/// What a reply proves of the names of one zone.
struct Proofs<'a> {
    zone: &'a Zone,
    how: Chained,
    all: Vec<Denial>,
}

/// Compares with the naive search, and looks for signatures and proofs.
pub(super) fn validate(
    naive: &Naive,
    how: &[Chained],
    name: &str,
    qtype: u16,
    reply: &[u8],
) -> Result<(), String> {
    let (code, aa, answer, authority) = naive::told(reply);
    let (want_code, want_aa, want_answer, want_authority) = naive.answer(name, qtype);
    let without = |section: &[Line], extra: &[u16]| -> Vec<Line> {
        section.iter().filter(|line| !extra.contains(&line.1)).cloned().collect()
    };
    let sorted = |mut lines: Vec<Line>| {
        lines.sort();
        lines
    };
    same("code", &code, &want_code)?;
    same("authoritative", &aa, &want_aa)?;
    same("answer", &without(&answer, &[46]), &sorted(want_answer.clone()))?;
    same("authority", &without(&authority, &[43, 46, 47, 50]), &sorted(want_authority.clone()))?;
    for section in [&answer, &authority] {
        if section.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("a record comes twice".into());
        }
        for line in without(section, &[2, 46]).iter().chain(answer.iter().filter(|line| line.1 == 2)) {
            let zone = naive.asked(&line.0, if [6, 43].contains(&line.1) { line.1 } else { qtype }).unwrap();
            if chained_of(naive, how, zone) == Chained::No && ![47, 50].contains(&line.1) {
                continue;
            }
            let rtype = Rtype::from_int(line.1).to_string().to_lowercase();
            let covers = |other: &&Line| {
                other.1 == 46 && other.0 == line.0 && other.2.starts_with(&(rtype.clone() + " "))
            };
            if line.1 != 2 || !authority.contains(line) {
                section.iter().chain(&answer).find(covers).ok_or(format!("{line:?} has no signature"))?;
            }
        }
    }
    let Some(first) = naive.asked(name, qtype) else { return Ok(()) };
    let proofs = |zone| Proofs::of(zone, chained_of(naive, how, zone), &authority);
    // A referral.
    if !want_aa && want_code == 0 {
        let cut = &want_authority[0].0;
        let ds = first.of_type(cut, 43);
        if chained_of(naive, how, first) == Chained::No {
            return Ok(());
        }
        return if ds.is_empty() {
            proofs(first).no_data(cut, "ds")
        } else {
            same("DS", &without(&authority, &[2, 6, 46, 47, 50]), &ds)
        };
    }
    let mut name = name.to_owned();
    let mut zone = Some(first);
    for line in &want_answer {
        let here = zone.unwrap();
        name.clone_from(&line.0);
        if here.source(&name) != name {
            proofs(here).expanded(&name)?;
        }
        if line.1 == 5 && qtype != 5 {
            name = line.2.trim_end_matches('.').to_owned();
            zone = naive.asked(&name, qtype);
        }
    }
    if want_authority.is_empty() {
        return Ok(());
    }
    let rtype = Rtype::from_int(qtype).to_string().to_lowercase();
    let proofs = proofs(zone.unwrap());
    if want_code == 3 { proofs.no_name(&name) } else { proofs.no_data(&name, &rtype) }
}

fn chained_of(naive: &Naive, how: &[Chained], zone: &Zone) -> Chained {
    how[naive.0.iter().position(|other| other.apex == zone.apex).unwrap()]
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, want: &T) -> Result<(), String> {
    if is == want { Ok(()) } else { Err(format!("{what}: {is:?}, not {want:?}")) }
}

impl<'a> Proofs<'a> {
    fn of(zone: &'a Zone, how: Chained, authority: &[Line]) -> Self {
        let mut all = Vec::new();
        for (owner, rtype, data) in authority {
            // The zone that signs it.
            let signer = format!(" {}. ", zone.apex);
            let is_own = |line: &&Line| line.1 == 46 && line.0 == *owner && line.2.contains(&signer);
            if ![47, 50].contains(rtype) || authority.iter().find(is_own).is_none() {
                continue;
            }
            let words: Vec<&str> = data.split(' ').collect();
            let at = if *rtype == 47 { 0 } else { 4 };
            all.push(Denial {
                owner: if *rtype == 47 { owner.clone() } else { owner.split('.').next().unwrap().to_owned() },
                next: words[at].trim_end_matches('.').to_owned(),
                types: words[at + 1..].iter().map(|&word| word.to_owned()).collect(),
                opt_out: *rtype == 50 && words[1] == "1",
            });
        }
        Self { zone, how, all }
    }

    fn is_hashed(&self) -> Option<u16> {
        if let Chained::Nsec3(iterations, _) = self.how { Some(iterations) } else { None }
    }

    fn matching(&self, name: &str) -> Option<&Denial> {
        let owner = self.is_hashed().map_or(name.to_owned(), |iterations| hash(name, iterations));
        self.all.iter().find(|denial| denial.owner == owner)
    }

    fn covering(&self, name: &str) -> Option<&Denial> {
        let between = |owner: &[&[u8]], name: &[&[u8]], next: &[&[u8]]| {
            if owner < next { owner < name && name < next } else { owner < name || name < next }
        };
        let hashed = self.is_hashed().map(|iterations| hash(name, iterations));
        self.all.iter().find(|denial| match &hashed {
            Some(hash) => between(&labels(&denial.owner), &labels(hash), &labels(&denial.next)),
            None => between(&labels(&denial.owner), &labels(name), &labels(&denial.next)),
        })
    }

    /// The closest encloser that the reply proves, the name below it, and what covers that.
    fn encloser(&self, name: &str) -> Result<(String, &Denial), String> {
        let path = self.zone.path(name);
        if self.is_hashed().is_some() {
            let at = path.iter().position(|above| self.matching(above).is_some());
            let at = at.filter(|at| *at > 0).ok_or(format!("no closest encloser of {name}"))?;
            let next_closer = &path[at - 1];
            let covering = self.covering(next_closer).ok_or(format!("{next_closer} may exist"))?;
            return Ok((path[at].clone(), covering));
        }
        let covering = self.covering(name).ok_or(format!("{name} may exist"))?;
        let is_above = |above: &str, of: &str| of == above || of.ends_with(&format!(".{above}"));
        let encloser = path
            .into_iter()
            .find(|above| is_above(above, &covering.owner) || is_above(above, &covering.next));
        Ok((encloser.unwrap(), covering))
    }

    fn no_name(&self, name: &str) -> Result<(), String> {
        if self.how == Chained::No {
            return Ok(());
        }
        let (encloser, covering) = self.encloser(name)?;
        let wildcard = format!("*.{encloser}");
        if encloser == name {
            return Err(format!("the proof says that {encloser} exists"));
        }
        // The name may be below one that exists for delegations that are left out, and then no wildcard is in question.
        let path = self.zone.path(name);
        let left_out =
            covering.opt_out && path.iter().find(|above| self.zone.exists(above)) != Some(&encloser);
        if left_out || self.covering(&wildcard).is_some() {
            Ok(())
        } else {
            Err(format!("{wildcard} may exist"))
        }
    }

    fn no_data(&self, name: &str, rtype: &str) -> Result<(), String> {
        let lacks = |denial: &Denial| {
            let ours = rtype == "ds" || !denial.types.contains("ns") || denial.types.contains("soa");
            let parent = rtype != "ds" || !denial.types.contains("soa") || name == self.zone.apex;
            !denial.types.contains(rtype) && !denial.types.contains("cname") && ours && parent
        };
        let is_empty = |name: &str| {
            let below = format!(".{name}");
            self.is_hashed().is_none()
                && self.covering(name).is_some_and(|denial| denial.next.ends_with(&below))
        };
        if self.how == Chained::No || is_empty(name) {
            return Ok(());
        }
        if let Some(denial) = self.matching(name) {
            return if lacks(denial) { Ok(()) } else { Err(format!("{name} may have {rtype}")) };
        }
        let (encloser, covering) = self.encloser(name)?;
        let (wildcard, source) = (format!("*.{encloser}"), self.zone.source(name));
        match self.matching(&wildcard) {
            Some(denial) if lacks(denial) => Ok(()),
            // It exists only as a delegation that is left out, or above one: this wildcard does not stand for it,
            // whatever types it has (RFC 5155, 8.9).
            Some(_) if covering.opt_out && source != wildcard && self.zone.exists(&source) => Ok(()),
            // What is not signed may be there.
            None if is_empty(&wildcard) || covering.opt_out && self.zone.exists(&source) => Ok(()),
            _ => Err(format!("{wildcard} may have {rtype}")),
        }
    }

    /// A wildcard answers for the name.
    fn expanded(&self, name: &str) -> Result<(), String> {
        if self.how == Chained::No {
            return Ok(());
        }
        let source = self.zone.source(name);
        let encloser = source.strip_prefix("*.").unwrap();
        let path = self.zone.path(name);
        let next_closer = &path[path.iter().position(|above| above == encloser).unwrap() - 1];
        let absent = if self.is_hashed().is_some() { next_closer } else { name };
        self.covering(absent).map(|_| ()).ok_or(format!("{absent} may exist"))
    }
}
