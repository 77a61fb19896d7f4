//! One key on a line, without sections: chrony's `key value` and coturn's `key=value` or `key value`.

use super::{Directive, Include, Parsed, numbered, span, unquoted};

/// Whose lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// Comments begin with `!`, `;`, `#` or `%`; keys in any case; `include` and `confdir` lead to other files.
    Chrony,
    /// Comments begin with `#`; keys have small letters; a value may begin with a double quote, which is none of it.
    Coturn,
}

/// The directives of chrony 4.3 (conf.c, CNF_ParseLine), but those that are options of a source, too.
const DIRECTIVES: &str = "acquisitionport allow authselectmode bindacqaddress bindacqdevice bindaddress bindcmdaddress binddevice broadcast \
    clientloglimit clockprecision cmdallow cmddeny cmdport cmdratelimit combinelimit commandkey confdir corrtimeratio deny driftfile dscp \
    dumpdir dumponexit fallbackdrift generatecommandkey hwclockfile hwtimestamp include initstepslew keyfile leapsecmode leapsectz \
    linux_freq_scale linux_hz local lock_all log logbanner logchange logdir mailonchange makestep manual maxchange maxclockerror \
    maxdistance maxdrift maxjitter maxlockage maxntsconnections maxslewrate maxtxbuffers maxupdateskew minsources nocerttimecheck \
    noclientlog nosystemcert ntpsigndsocket ntsaeads ntscachedir ntsdumpdir ntsntpserver ntsport ntsprocesses ntsratelimit ntsrefresh \
    ntsrotate ntsservercert ntsserverkey ntstrustedcerts peer pidfile pool ptpport ratelimit refclock refresh reselectdist \
    reselectdistance rtcautotrim rtcdevice rtcfile rtconutc rtcsync sched_priority server smoothtime sourcedir stratumweight tempcomp \
    user";
/// Those that may be an option of a source.
const OPTIONS: [&str; 5] = ["port", "maxsamples", "minsamples", "maxsources", "maxdelay"];
const SOURCES: [&str; 4] = ["server", "pool", "peer", "refclock"];

/// The lines that chronyd has on its command line. It cuts them into words there, so that nothing but the names of
/// directives tells where they begin.
///
/// # Errors
/// It is not known of this word.
pub(in super::super) fn of_words(words: &[&str]) -> Result<Vec<String>, String> {
    let mut lines: Vec<String> = Vec::new();
    for word in words.iter().flat_map(|word| word.split_whitespace()) {
        let is = |other: &&str| other.eq_ignore_ascii_case(word);
        let source = lines
            .last()
            .and_then(|line| line.split(' ').next())
            .is_some_and(|first| SOURCES.iter().any(|source| source.eq_ignore_ascii_case(first)));
        if OPTIONS.iter().any(&is) && source {
            return Err(format!("{word} after a source may be its option, or a directive"));
        }
        let begins = DIRECTIVES.split_whitespace().any(|name| is(&name)) || OPTIONS.iter().any(is);
        match lines.last_mut().filter(|_| !begins) {
            Some(line) => *line = format!("{line} {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    Ok(lines)
}

/// Reads a file.
pub(super) fn parse(text: &str, style: Style) -> Parsed {
    let mut parsed = Parsed::default();
    for (number, _, line) in numbered(text) {
        let line = line.trim();
        let comment = match style {
            Style::Chrony => line.starts_with(['!', ';', '#', '%']),
            Style::Coturn => line.starts_with('#'),
        };
        if line.is_empty() || comment {
            continue;
        }
        let (key, value) = match style {
            Style::Chrony => line.split_once([' ', '\t']).unwrap_or((line, &line[line.len()..])),
            // Blanks, tabs and `=` in any number separate them (mainrelay.c, parse_arg_string).
            Style::Coturn => {
                let end = line.find([' ', '\t', '=']).unwrap_or(line.len());
                (&line[..end], line[end..].trim_start_matches([' ', '\t', '=']))
            }
        };
        let (key, value) = match style {
            Style::Chrony => (key.trim().to_ascii_lowercase(), value.trim()),
            Style::Coturn => (key.to_owned(), coturn_value(value.trim())),
        };
        let include = |paths: Vec<String>, optional| {
            let at = span(text, value).start;
            Include { paths, at, section: None, optional }
        };
        match (style, key.as_str()) {
            (Style::Chrony, "include") => parsed.includes.push(include(vec![value.to_owned()], false)),
            (Style::Chrony, "confdir") => {
                let folders = value.split_whitespace().map(|folder| format!("{folder}/*.conf"));
                parsed.includes.push(include(folders.collect(), true));
            }
            _ => {}
        }
        parsed.directives.push(Directive {
            section: None,
            key,
            value: match style {
                Style::Chrony => unquoted(value),
                Style::Coturn => value.trim_matches('"'),
            }
            .to_owned(),
            span: span(text, value),
            line: number,
        });
    }
    parsed
}

/// The value that a text begins with: a number of coturn's ends before anything else, such as a comment, but what
/// sticks to it.
fn coturn_value(text: &str) -> &str {
    let is_number = text.trim_start_matches('"').starts_with(|letter: char| letter.is_ascii_digit());
    if is_number { text.split_whitespace().next().unwrap_or(text) } else { text }
}
