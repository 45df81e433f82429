//! The command line with its help in groups.

use std::ffi::OsString;
use std::process;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches};

use super::{Cli, Command, Query};
use crate::config::args::Output;
use crate::config::check_client_options;
use crate::config::define;
use crate::config::failure::{self, Failure};
use crate::config::log::format_in_use;
use crate::config::subjects::definitions;
use crate::config::values::LogFormat;
use crate::config::written::{self, Written};

/// The arguments that are no settings: they have neither a variable nor a key.
pub(super) const NO_SETTINGS: [&str; 5] = ["once", "check", "output", "help", "version"];

/// The argument in its final form.
fn finished(argument: Arg) -> Arg {
    let is_setting = !NO_SETTINGS.contains(&argument.get_id().as_str());
    if is_setting { define::finished(argument) } else { argument }
}

/// The commands that ask no agent: their help does not show how to reach one, and what they print has one form.
const WITHOUT_AN_AGENT: [&str; 2] = ["completion", "man"];

/// The definition of the command line.
pub(crate) fn command() -> clap::Command {
    let command = Cli::command().mut_args(finished);
    let of_all_commands = command.get_arguments().filter(|argument| argument.is_global_set());
    // A command that has an argument of this name does not get the one that all have.
    let hidden: Vec<_> = of_all_commands.map(|argument| argument.clone().hide(true)).collect();
    let command = WITHOUT_AN_AGENT
        .into_iter()
        .fold(command, |command, name| command.mut_subcommand(name, |command| command.args(&hidden)));
    command
        // The settings are many, and the same.
        .mut_subcommand("doctor", |doctor| doctor.mut_args(|argument| finished(argument).hide(true)))
        // One line for each option. What can be looked up needs a longer help.
        .mut_subcommands(|command| match command.get_name() {
            "whois" => command,
            _ => command.disable_help_flag(true).arg(
                Arg::new("help").short('h').long("help").action(ArgAction::HelpShort).help("Print help"),
            ),
        })
}

/// Why variables of the environment set nothing, although they look like a setting's.
pub(super) fn ignored_variables() -> Vec<String> {
    let command = command();
    let names = command.get_arguments().map(|argument| argument.get_id().as_str());
    let flags: Vec<_> = names.filter(|name| !NO_SETTINGS.contains(name)).collect();
    written::ignored_variables(&flags)
}

/// The help of a command.
pub(crate) fn of(name: &str) -> String {
    let mut command = command();
    command.build();
    command
        .find_subcommand_mut(name)
        .map(|command| command.render_long_help().to_string())
        .unwrap_or_default()
}

/// Parses the command line and the environment. Ends the process if clap refuses the command line.
pub(crate) fn parse(arguments: &[OsString]) -> Result<Cli, Failure> {
    let command = command();
    let fails = |error: clap::Error| -> ! { fail(&error, arguments) };
    let matches = command.clone().try_get_matches_from(arguments).unwrap_or_else(|error| fails(error));
    let mut cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| fails(error));
    let prints_pods = matches!(cli.command, Some(Command::Query(Query::List(_) | Query::Get { .. })));
    if matches!(cli.output, Output::Wide | Output::Name) && !prints_pods {
        let message = "--output: wide and name are for `pod-index list` and `pod-index get`";
        fails(self::command().error(ErrorKind::InvalidValue, message));
    }
    let mut subjects = cli.subjects();
    let of_the_command = innermost(&matches);
    let mut written = Written::on_the_command_line(
        &definitions(&subjects),
        of_the_command,
        arguments,
        define::aliases(&command),
    );
    written.add_environment(&mut subjects)?;
    if cli.command.is_some() {
        check_client_options(&cli.client, &written)?;
    }
    cli.written = written;
    Ok(cli)
}

/// What the subcommand was given, or else the program. It includes the options that all commands have.
fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, of_the_command)| innermost(of_the_command))
}

/// Prints the error, or the help that was asked for, and ends the process.
fn fail(error: &clap::Error, arguments: &[OsString]) -> ! {
    let format = format_in_use(arguments);
    if error.use_stderr() && format == LogFormat::Json {
        failure::print(&error.to_string(), format);
        process::exit(error.exit_code());
    }
    error.exit()
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
            if WITHOUT_AN_AGENT.contains(&subcommand.get_name()) {
                assert!(!help.contains("--address") && !help.contains("--output"), "{help}");
                continue;
            }
            assert!(help.contains("--address"), "{help}");
            let before = help.split("--output").next().unwrap();
            let heading = before.lines().rev().find(|line| line.ends_with(':') && !line.starts_with(' '));
            assert_eq!(heading, Some("Output:"), "{help}");
        }
        let doctor = help_of("doctor");
        assert!(doctor.contains("pod-index --help"), "{doctor}");
    }
}
