//! The command line with its help in groups.

use std::any::TypeId;
use std::ffi::OsString;

use clap::builder::NonEmptyStringValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches};

use super::{Cli, Command, Query};
use crate::config::args::Output;

/// The groups of the help, each with the ID of its first option. The others follow it in the definition.
const GROUPS: [(&str, &str); 9] = [
    ("config", "Run"),
    ("static_pod_path", "Sources"),
    ("manage_mirror_pods", "Mirror pods"),
    ("proc", "Look-ups"),
    ("health_address", "Serving"),
    ("allow_remote_clients", "Security"),
    ("log_level", "Output"),
    ("address", "Address of the agent"),
    ("output", "Output"),
];

/// Gives an option of the agent its environment variable, and refuses an empty text: it would silently switch off what
/// it was meant to set. clap refuses empty paths itself.
fn with_variable(mut argument: Arg) -> Arg {
    if argument.get_value_parser().type_id() == TypeId::of::<String>() {
        argument = argument.value_parser(NonEmptyStringValueParser::new());
    }
    match argument.get_long() {
        None | Some("once" | "check" | "output" | "help" | "version") => argument,
        Some(flag) => {
            let variable = format!("POD_INDEX_{}", flag.replace('-', "_").to_uppercase());
            // The help of `--config` has the rule.
            argument.env(variable).hide_env(true)
        }
    }
}

/// The definition of the command line.
pub(crate) fn command() -> clap::Command {
    let mut group = "";
    Cli::command()
        .mut_args(|argument| {
            let first = GROUPS.iter().find(|(id, _)| argument.get_id() == id);
            group = first.map_or(group, |(_, name)| *name);
            let argument = with_variable(argument);
            // Those of TLS have theirs.
            if argument.get_help_heading().is_some() { argument } else { argument.help_heading(group) }
        })
        // The settings are many, and the same.
        .mut_subcommand("doctor", |doctor| doctor.mut_args(|argument| with_variable(argument).hide(true)))
        // One line for each option. What can be looked up needs a longer help.
        .mut_subcommands(|command| match command.get_name() {
            "whois" => command,
            _ => command.disable_help_flag(true).arg(
                Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).help("Print help"),
            ),
        })
}

/// Parses the command line. Ends the process if it is wrong.
pub(crate) fn parse(arguments: &[OsString]) -> Cli {
    let matches = command().get_matches_from(arguments);
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let is_list = matches!(cli.command, Some(Command::Query(Query::List(_))));
    if matches!(cli.output, Output::Wide | Output::Name) && !is_list {
        let message = "--output: wide and name are for `pod-index list`";
        command().error(ErrorKind::InvalidValue, message).exit();
    }
    cli
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `pod-index COMMAND --help` prints in a terminal of 80 columns.
    fn help_of(name: &str) -> String {
        let whole = command().term_width(80);
        let error = whole.try_get_matches_from(["pod-index", name, "--help"]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DisplayHelp);
        error.to_string()
    }

    #[test]
    fn each_option_of_the_agent_is_in_a_group_and_the_help_of_each_command_fits_on_a_screen() {
        for argument in command().get_arguments() {
            assert!(argument.get_help_heading().is_some(), "{}", argument.get_id());
        }
        for subcommand in command().get_subcommands() {
            let help = help_of(subcommand.get_name());
            assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
            let most = if subcommand.get_name() == "whois" { 100 } else { 40 };
            assert!(help.lines().count() <= most, "{help}");
            assert!(!help.contains("--tls-cert-file"), "{help}");
        }
        let doctor = help_of("doctor");
        assert!(doctor.contains("pod-index --help"), "{doctor}");
    }
}
