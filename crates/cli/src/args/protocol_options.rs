//! The options that protocols add to `serve` and `load`, taken from the registry: a protocol declares them in its own
//! folder, and this file passes on what the user gave.

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use udpath_protocols::{OptionError, OptionSpec, Options, PROTOCOLS, ProtocolEntry};

type Declared = fn(&ProtocolEntry) -> &'static [OptionSpec];

/// Options of all protocols, of which the chosen one accepts its own.
#[derive(Debug, Clone, Default)]
struct Given {
    /// Values of each option that was given; a flag has an empty one.
    values: Vec<(&'static OptionSpec, Vec<std::ffi::OsString>)>,
}

/// Every option of the registry once, with the protocols that have it.
fn distinct(declared: Declared) -> Vec<(&'static OptionSpec, Vec<&'static str>)> {
    let mut all: Vec<(&'static OptionSpec, Vec<&'static str>)> = Vec::new();
    for protocol in PROTOCOLS {
        for option in declared(protocol) {
            match all.iter_mut().find(|(known, _)| known.name == option.name) {
                Some((_, of)) => of.push(protocol.name),
                None => all.push((option, vec![protocol.name])),
            }
        }
    }
    all
}

fn augment(command: Command, declared: Declared) -> Command {
    distinct(declared).into_iter().fold(command, |command, (option, of)| {
        let arg =
            Arg::new(option.name).long(option.name).help(format!("With {}: {}", of.join(", "), option.help));
        command.arg(match option.value {
            None => arg.action(ArgAction::SetTrue),
            Some(value) => {
                let action = if option.repeatable { ArgAction::Append } else { ArgAction::Set };
                let parser = clap::value_parser!(std::ffi::OsString);
                arg.value_name(value).action(action).value_parser(parser).allow_hyphen_values(true)
            }
        })
    })
}

impl Given {
    fn read(matches: &ArgMatches, declared: Declared) -> Self {
        let values = distinct(declared).into_iter().filter_map(|(option, _)| {
            let given: Vec<_> = match option.value {
                None => matches.get_flag(option.name).then(Default::default).into_iter().collect(),
                Some(_) => matches.get_many(option.name).into_iter().flatten().cloned().collect(),
            };
            (!given.is_empty()).then_some((option, given))
        });
        Self { values: values.collect() }
    }

    /// The options for `protocol`; rejects those of another.
    fn of(&self, protocol: &ProtocolEntry, declared: Declared) -> Result<Options, OptionError> {
        let mut options = Options::default();
        for (given, values) in &self.values {
            if !declared(protocol).iter().any(|own| own.name == given.name) {
                let others = distinct(declared).into_iter().find(|(option, _)| option.name == given.name);
                let others = others.map_or_else(String::new, |(_, of)| of.join(", "));
                return Err(OptionError::NotOf { option: given.name, others, protocol: protocol.name });
            }
            for value in values {
                options.push(given, value);
            }
        }
        Ok(options)
    }
}

macro_rules! options_of {
    ($name:ident, $verb:literal, $declared:expr) => {
        #[doc = concat!("Options that protocols add to `", $verb, "`.")]
        #[derive(Debug, Clone, Default)]
        pub(crate) struct $name(Given);

        impl $name {
            /// The options for `protocol`; rejects those of another.
            pub(crate) fn of(&self, protocol: &ProtocolEntry) -> Result<Options, OptionError> {
                self.0.of(protocol, $declared)
            }
        }

        impl FromArgMatches for $name {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self(Given::read(matches, $declared)))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                self.0 = Given::read(matches, $declared);
                Ok(())
            }
        }

        impl clap::Args for $name {
            fn augment_args(command: Command) -> Command {
                augment(command, $declared)
            }

            fn augment_args_for_update(command: Command) -> Command {
                augment(command, $declared)
            }
        }
    };
}

options_of!(ServeOptions, "serve", |protocol| protocol.serve_options);
options_of!(LoadOptions, "load", |protocol| protocol.load_options);
