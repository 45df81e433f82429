//! Tests that `docs/reference.md` lists exactly the flags, variables and keys that exist.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, FromArgMatches};

use super::{Cli, help};
use crate::config::define::Definition;
use crate::config::subjects::definitions;

const REFERENCE: &str = include_str!("../../../docs/reference.md");

/// The words of a cell that are formatted as code.
fn code(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The cells of the settings table: flags, default, meaning.
fn rows() -> Vec<[&'static str; 3]> {
    let table = REFERENCE.split("| flag | default | meaning |").nth(1).expect("the table of settings");
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let cells = |line: &'static str| {
        let mut cells = line.split('|').skip(1).map(str::trim);
        std::array::from_fn(|_| cells.next().expect("three cells"))
    };
    lines.map(cells).collect()
}

/// The keys of a row: those that it names, otherwise the flag in the file's spelling.
fn keys_of(row: [&'static str; 3]) -> Vec<String> {
    if row[2].ends_with("No key.") {
        return Vec::new();
    }
    if let Some((_, keys)) = row[2].split_once(" Key: ") {
        return code(keys).into_iter().map(str::to_owned).collect();
    }
    let flag = code(row[0])[0].split(' ').next().expect("the flag").trim_start_matches('-');
    let mut words = flag.split('-');
    let mut key = words.next().expect("a word").to_owned();
    for word in words {
        key.extend([word[..1].to_ascii_uppercase().as_str(), &word[1..]]);
    }
    vec![key]
}

/// All settings.
fn settings() -> Vec<&'static Definition> {
    let matches = help::command().get_matches_from(["pod-index"]);
    definitions(&Cli::from_arg_matches(&matches).unwrap().subjects())
}

/// The keys of the configuration file, aliases included.
fn keys() -> BTreeSet<String> {
    settings().into_iter().flat_map(Definition::keys).collect()
}

#[test]
fn the_reference_has_every_flag_with_its_variable_and_its_default() {
    let rows: BTreeMap<_, _> = rows().into_iter().map(|row| (code(row[0])[0], row)).collect();
    let command = help::command();
    let arguments: Vec<&Arg> =
        command.get_arguments().filter(|arg| !["help", "version"].contains(&arg.get_id().as_str())).collect();
    for argument in &arguments {
        let flag = format!("--{}", argument.get_long().expect("flags are long"));
        let row = rows.iter().find(|(first, _)| first.split(' ').next() == Some(&flag));
        let (first, row) = row.unwrap_or_else(|| panic!("docs/reference.md has no row for {flag}"));

        let mut names = code(row[0]);
        names[0] = first.split(' ').next().expect("the flag");
        let mut expected = vec![flag.clone()];
        expected.extend(argument.get_short().map(|short| format!("-{short}")));
        let aliases = argument.get_visible_aliases().unwrap_or_default();
        expected.extend(aliases.into_iter().map(|alias| format!("--{alias}")));
        assert_eq!(names, expected, "the names of {flag}");

        let value = first.split_once(' ').map(|(_, value)| value);
        let is_boolean = argument.get_num_args().is_some_and(|number| number.min_values() == 0);
        let takes_value = argument.get_action().takes_values() && !is_boolean;
        assert_eq!(value.is_some(), takes_value, "whether {flag} takes a value");

        let definition = settings().into_iter().find(|definition| definition.flag == &flag[2..]);
        let has_none = ["--once", "--once-timeout", "--check", "--output"].contains(&flag.as_str());
        assert_eq!(definition.is_none(), has_none, "whether {flag} has a variable");

        let help = argument.get_long_help().or(argument.get_help()).expect("each flag has help").to_string();
        let in_help =
            help.split("[default: ").nth(1).and_then(|rest| rest.split(']').next()).map(str::to_owned);
        let default =
            argument.get_default_values().first().and_then(|value| value.to_str()).map(str::to_owned);
        let default = in_help.or(default).filter(|_| takes_value);
        assert_eq!(code(row[1]).first().copied(), default.as_deref(), "the default of {flag}");
    }
    assert_eq!(rows.len(), arguments.len(), "docs/reference.md has a row for an unknown flag");
}

#[test]
fn the_reference_has_every_key_of_the_configuration_file() {
    let documented: Vec<_> = rows().into_iter().flat_map(keys_of).collect();
    let set: BTreeSet<_> = documented.iter().cloned().collect();
    assert_eq!(documented.len(), set.len(), "a key is listed twice");
    assert_eq!(set, keys());
}

#[test]
fn the_reference_has_every_command_and_its_flags() {
    let agent = help::command();
    let of_the_agent: BTreeSet<_> = agent.get_arguments().filter_map(Arg::get_long).collect();
    for command in agent.get_subcommands() {
        let name = format!("| `pod-index {}", command.get_name());
        let row = REFERENCE.lines().find(|line| line.starts_with(&name));
        let row = row.unwrap_or_else(|| panic!("docs/reference.md has no row for {}", command.get_name()));
        let flags = command.get_arguments().filter_map(Arg::get_long);
        for flag in flags.filter(|flag| *flag != "help" && !of_the_agent.contains(flag)) {
            assert!(row.contains(&format!("--{flag}")), "{name}: --{flag}");
        }
    }
}
