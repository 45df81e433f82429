//! Shell completions and manual pages, from the definition of the command line.

use clap_complete::Shell;
use clap_mangen::Man;

use super::{format, help};
use crate::config::failure::Failure;
use crate::config::rule;

const PROGRAM: &str = "pod-index";

/// Prints the completions for a shell.
pub(crate) fn completion(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut help::command(), PROGRAM, &mut script);
    format::write(&script).map(drop)
}

/// Prints the manual page of the program, or of one of its commands.
pub(crate) fn manual(command: Option<&str>) -> Result<(), Failure> {
    format::write(&page(command)?).map(drop)
}

/// A manual page, in roff.
fn page(command: Option<&str>) -> Result<Vec<u8>, Failure> {
    let mut program = help::command();
    program.build();
    let documented = match command {
        None => program,
        Some(name) => {
            let found = program.find_subcommand(name).filter(|command| !command.is_hide_set());
            rule(found.is_some(), format!("man: there is no command {name:?}"))?;
            let title = format!("{PROGRAM}-{name}");
            found.cloned().unwrap_or_default().name(title.clone()).display_name(title)
        }
    };
    let mut page = Vec::new();
    let written = Man::new(documented).render(&mut page);
    written.map_err(|error| Failure::unable("cannot write the page", error))?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn each_shell_completes_every_command_and_the_flags_of_the_agent() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut help::command(), PROGRAM, &mut script);
            let script = String::from_utf8(script).unwrap();
            for command in help::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
            assert!(script.contains("checkpoint-dir"), "{shell}");
        }
    }

    #[test]
    fn each_command_has_a_page_with_its_flags() {
        let text =
            |command: Option<&str>| String::from_utf8(page(command).unwrap()).unwrap().replace("\\-", "-");
        let of_the_program = text(None);
        for argument in help::command().get_arguments() {
            let flag = argument.get_long().unwrap();
            assert!(of_the_program.contains(&format!("--{flag}")), "{flag}");
        }
        for command in help::command().get_subcommands() {
            let page = text(Some(command.get_name()));
            assert!(page.contains(&format!("pod-index-{}", command.get_name())), "{page}");
        }
        assert!(text(Some("whois")).contains("--time-field"));
        assert!(page(Some("nothing")).is_err());
    }
}
