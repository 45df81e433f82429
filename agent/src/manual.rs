//! Completion scripts and manual pages, generated from the definition of the command line.

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use super::cli::{Cli, CompletedShell};
use super::exit::Failure;
use super::format;

/// Prints the completion script of a shell.
pub(super) fn print_completions(shell: CompletedShell) -> Result<(), Failure> {
    format::print(&completions(shell))
}

/// Prints the manual page of the agent, or that of a command.
pub(super) fn print_page(command: Option<&str>) -> Result<(), Failure> {
    format::print(&page(command)?)
}

fn completions(shell: CompletedShell) -> String {
    let shell = match shell {
        CompletedShell::Bash => Shell::Bash,
        CompletedShell::Zsh => Shell::Zsh,
        CompletedShell::Fish => Shell::Fish,
    };
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

fn page(name: Option<&str>) -> Result<String, Failure> {
    let agent = built();
    let command = match name {
        None => agent,
        Some(name) => agent.find_subcommand(name).cloned().ok_or_else(|| {
            let names: Vec<_> = agent.get_subcommands().map(Command::get_name).collect();
            Failure::Usage(format!("man: there is no command {name:?}, only {}", names.join(", ")))
        })?,
    };
    let mut page = Vec::new();
    Man::new(command).render(&mut page).map_err(|error| Failure::unable("man", error))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}

/// The command line, in which each command has its full name and the flags that all commands accept.
fn built() -> Command {
    let mut command = Cli::command();
    command.build();
    command
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    fn flags(command: &Command) -> Vec<String> {
        let arguments = command.get_arguments().filter(|argument| !argument.is_hide_set());
        arguments.filter_map(|argument| argument.get_long().map(str::to_owned)).collect()
    }

    #[test]
    fn each_script_completes_every_command_and_every_flag_of_it() {
        for shell in CompletedShell::value_variants() {
            let script = completions(*shell);
            let all = built();
            for command in all.get_subcommands().chain([&all]) {
                assert!(script.contains(command.get_name()), "{shell:?}: {}", command.get_name());
                for flag in flags(command) {
                    let spelled = if *shell == CompletedShell::Fish {
                        format!("-l {flag}")
                    } else {
                        format!("--{flag}")
                    };
                    assert!(script.contains(&spelled), "{shell:?}: {} {spelled}", command.get_name());
                }
            }
        }
    }

    #[test]
    fn each_page_names_every_flag_and_the_agents_page_every_command() {
        // In roff a hyphen is a minus sign unless it is escaped.
        let roff = |text: &str| text.replace('-', r"\-");
        let all = built();
        let main = page(None).unwrap();
        assert!(main.starts_with(".ie"), "roff: {main}");
        for command in all.get_subcommands() {
            let name = command.get_name();
            assert!(main.contains(&roff(&format!("pod-index-{name}"))), "{name}");
            let page = page(Some(name)).unwrap();
            assert!(page.contains(&roff(&format!("pod-index-{name}"))), "{page}");
            for flag in flags(command) {
                assert!(page.contains(&roff(&format!("--{flag}"))), "{name} --{flag}: {page}");
            }
        }
        for flag in flags(&all) {
            assert!(main.contains(&roff(&format!("--{flag}"))), "--{flag}");
        }
        assert!(
            matches!(page(Some("nothing")), Err(Failure::Usage(message)) if message.contains("\"nothing\""))
        );
    }
}
