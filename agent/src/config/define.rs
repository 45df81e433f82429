//! How a setting is defined: once, as a field of a struct in [`subjects`](super::subjects).
//!
//! ```text
//! settings! {
//!     /// This node's kubelet, as a source of pods.
//!     pub(crate) struct KubeletSource in "Sources" {
//!         /// Read pods from this node's kubelet.
//!         #[flag("kubelet", value_name = "URL")]
//!         pub(crate) url: Option<String>,
//!     }
//! }
//! ```
//! This is the flag `--kubelet URL`, with its help under "Sources", the variable `POD_INDEX_KUBELET` and the key
//! `kubelet` of the configuration file. What follows the flag's name are attributes of clap's `#[arg]`. `#[keys("a")]`
//! names the key if it is not the flag's name in camel case; `#[keys("a", "b")]` adds another name for it; `#[keys()]`
//! means that the file cannot set it. The field's type is one that implements [`Text`], an `Option` or a `Vec` of it.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{EnumValueParser, ValueParser};
use clap::{Arg, ArgAction, Command, ValueEnum};
use tracing::Level;

use super::duration::go_duration;
use super::values::{AuthorizationMode, Extra, Header, LogFormat, Period, SocketMode, StaticPods};

/// Settings that belong together: a struct that `settings!` defines.
pub(crate) trait Subject {
    fn definitions(&self) -> &'static [Definition];

    /// Sets the field of this flag. The error says what the texts must be.
    fn set(&mut self, flag: &str, texts: &[OsString]) -> Result<(), String>;

    /// The flags of the settings that have another value here than in `other`.
    fn differing(&self, other: &Self) -> Vec<&'static str>
    where
        Self: Sized;

    /// Copies the field of this flag, and no other one.
    fn copy(&mut self, flag: &str, from: &Self)
    where
        Self: Sized;
}

/// A setting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    /// The name of its flag, without `--`. It is also the ID of clap's argument.
    pub(crate) flag: &'static str,
    /// Its keys in the configuration file, if they do not follow from the flag. The first is the one to show.
    pub(crate) named_keys: Option<&'static [&'static str]>,
    pub(crate) shape: Shape,
}

/// How the configuration file writes a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    /// A text. If it is relative, it is relative to the file's directory, as in the kubelet's file.
    Path,
    Boolean,
    List,
    /// A map of lists: the values of each header, as in the kubelet's file. A value may be secret.
    Headers,
}

impl Definition {
    /// Its keys in the configuration file.
    pub(crate) fn keys(&self) -> Vec<String> {
        match self.named_keys {
            Some(keys) => keys.iter().map(|key| (*key).to_owned()).collect(),
            None => vec![camel_case(self.flag)],
        }
    }

    /// The key to show.
    pub(crate) fn key(&self) -> Option<String> {
        self.keys().into_iter().next()
    }

    /// Its environment variable.
    pub(crate) fn variable(&self) -> String {
        variable(self.flag)
    }
}

/// How the variables of settings begin.
pub(super) const PREFIX: &str = "POD_INDEX_";

/// The environment variable of the setting with this flag.
pub(super) fn variable(flag: &str) -> String {
    format!("{PREFIX}{}", flag.replace('-', "_").to_uppercase())
}

/// `checkpointDir` for `checkpoint-dir`.
fn camel_case(flag: &str) -> String {
    let mut words = flag.split('-');
    let mut key = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        key.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        key.push_str(letters.as_str());
    }
    key
}

/// The argument of a setting, as the command line has it: a boolean can be turned off (`--api-server=false`), and what
/// has several values takes them separated by commas.
pub(crate) fn finished(argument: Arg) -> Arg {
    match argument.get_action() {
        ArgAction::SetTrue => argument
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true")
            .default_value("false")
            .hide_default_value(true)
            .value_name("BOOL"),
        ArgAction::Append => argument.value_delimiter(','),
        _ => argument,
    }
}

/// The other names of each flag of this command line.
pub(crate) fn aliases(command: &Command) -> impl Fn(&str) -> Vec<String> {
    |flag| {
        let argument = command.get_arguments().find(|argument| argument.get_id() == flag);
        let aliases = argument.and_then(Arg::get_visible_aliases).unwrap_or_default();
        aliases.into_iter().map(str::to_owned).collect()
    }
}

/// A type that the field of a setting can have.
///
/// What do 0 and nothing mean? 0 is a number like any other: nothing is kept for 0 s, and at most 0 watches are none. It is not
/// "no limit", which is an `Option` that is not given, as every feature that is off. What means something else has a type of its
/// own, which says so: a [`Period`], and a port, of which the operating system picks one for 0.
pub(crate) trait Value: Sized {
    const SHAPE: Shape;

    /// The value that an environment variable or the configuration file gives.
    fn from_texts(texts: &[OsString]) -> Result<Self, String>;

    /// Parses what a flag gives.
    fn parser() -> ValueParser;
}

/// A value that is one text. Each layer parses it with [`from_text`](Self::from_text).
pub(crate) trait Text: Clone + Send + Sync + 'static {
    const SHAPE: Shape = Shape::Text;
    /// The shape of several.
    const SHAPE_OF_SEVERAL: Shape = Shape::List;

    /// The error says what the text must be, and does not quote it.
    fn from_text(text: &str) -> Result<Self, String>;

    fn from_os_text(text: &OsStr) -> Result<Self, String> {
        Self::from_text(text.to_str().ok_or("must be UTF-8")?)
    }

    fn parser() -> ValueParser {
        let parse: fn(&str) -> Result<Self, String> = Self::from_text;
        ValueParser::from(parse)
    }
}

impl<T: Text> Value for T {
    const SHAPE: Shape = T::SHAPE;

    fn from_texts(texts: &[OsString]) -> Result<Self, String> {
        T::from_os_text(texts.last().ok_or("must have a value")?)
    }

    fn parser() -> ValueParser {
        T::parser()
    }
}

impl<T: Text> Value for Option<T> {
    const SHAPE: Shape = T::SHAPE;

    fn from_texts(texts: &[OsString]) -> Result<Self, String> {
        texts.last().map(|text| T::from_os_text(text)).transpose()
    }

    fn parser() -> ValueParser {
        T::parser()
    }
}

impl<T: Text> Value for Vec<T> {
    const SHAPE: Shape = T::SHAPE_OF_SEVERAL;

    fn from_texts(texts: &[OsString]) -> Result<Self, String> {
        texts.iter().map(|text| T::from_os_text(text)).collect()
    }

    fn parser() -> ValueParser {
        T::parser()
    }
}

impl Text for String {
    /// An empty text would silently switch off what it was meant to set.
    fn from_text(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.to_owned()) }
    }
}

impl Text for PathBuf {
    const SHAPE: Shape = Shape::Path;

    fn from_text(text: &str) -> Result<Self, String> {
        Self::from_os_text(text.as_ref())
    }

    fn from_os_text(text: &OsStr) -> Result<Self, String> {
        if text.is_empty() { Err("must not be empty".to_owned()) } else { Ok(text.into()) }
    }

    fn parser() -> ValueParser {
        // A path need not be UTF-8.
        ValueParser::path_buf()
    }
}

impl Text for bool {
    const SHAPE: Shape = Shape::Boolean;

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "must be true or false".to_owned())
    }
}

impl Text for usize {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "must be a whole number".to_owned())
    }
}

impl Text for u16 {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("must be a whole number from 0 to {}", Self::MAX))
    }
}

impl Text for Duration {
    fn from_text(text: &str) -> Result<Self, String> {
        go_duration(text).map_err(str::to_owned)
    }
}

impl Text for Period {
    fn from_text(text: &str) -> Result<Self, String> {
        Duration::from_text(text).map(Self::new)
    }
}

impl Text for IpAddr {
    fn from_text(text: &str) -> Result<Self, String> {
        let address = if text == "localhost" { "127.0.0.1" } else { text };
        address.parse().map_err(|_| "must be an IP address, or localhost".to_owned())
    }
}

impl Text for SocketAddr {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "must be an IP address, a colon and a port".to_owned())
    }
}

impl Text for Level {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "must be error, warn, info, debug or trace".to_owned())
    }
}

impl Text for SocketMode {
    fn from_text(text: &str) -> Result<Self, String> {
        let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o777);
        bits.map(Self).ok_or_else(|| "must be permissions in octal, such as 0660".to_owned())
    }
}

impl Text for Header {
    const SHAPE_OF_SEVERAL: Shape = Shape::Headers;

    /// In the kubelet's format.
    fn from_text(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once(':').ok_or("must be a name, a colon and a value")?;
        Ok(Self { name: name.trim().to_owned(), value: value.trim().to_owned() })
    }
}

/// Types with a few values, each of which has a name.
macro_rules! text_of_enum {
    ($($type:ty),*) => {$(
        impl Text for $type {
            fn from_text(text: &str) -> Result<Self, String> {
                <Self as ValueEnum>::from_str(text, false).map_err(|_| {
                    let values = Self::value_variants().iter().filter_map(ValueEnum::to_possible_value);
                    let names: Vec<_> = values.map(|value| value.get_name().to_owned()).collect();
                    format!("must be {}", names.join(" or "))
                })
            }

            fn parser() -> ValueParser {
                EnumValueParser::<Self>::new().into()
            }
        }
    )*};
}

text_of_enum!(AuthorizationMode, Extra, LogFormat, StaticPods);

/// Defines a [`Subject`]; see the [module](self).
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        pub(crate) struct $name:ident in $heading:literal {
            $(
                $(#[doc = $help:literal])+
                #[flag($flag:literal $(, $($attribute:tt)+)?)]
                $(#[keys($($key:literal),*)])?
                pub(crate) $field:ident: $type:ty,
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(clap::Args, Clone, Debug)]
        #[command(next_help_heading = $heading)]
        #[allow(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
        #[allow(clippy::doc_markdown, reason = "help is not Markdown")]
        pub(crate) struct $name {
            $(
                $(#[doc = $help])+
                #[arg(
                    id = $flag,
                    long = $flag,
                    value_parser = <$type as $crate::config::define::Value>::parser(),
                    $($($attribute)+)?
                )]
                pub(crate) $field: $type,
            )+
        }

        impl $crate::config::define::Subject for $name {
            fn definitions(&self) -> &'static [$crate::config::define::Definition] {
                &[$($crate::config::define::Definition {
                    flag: $flag,
                    named_keys: $crate::config::define::settings!(@keys $([$($key),*])?),
                    shape: <$type as $crate::config::define::Value>::SHAPE,
                }),+]
            }

            fn set(&mut self, flag: &str, texts: &[std::ffi::OsString]) -> Result<(), String> {
                match flag {
                    $($flag => self.$field = $crate::config::define::Value::from_texts(texts)?,)+
                    _ => {}
                }
                Ok(())
            }

            fn differing(&self, other: &Self) -> Vec<&'static str> {
                let mut flags = Vec::new();
                $(
                    if self.$field != other.$field {
                        flags.push($flag);
                    }
                )+
                flags
            }

            fn copy(&mut self, flag: &str, from: &Self) {
                match flag {
                    $($flag => self.$field = from.$field.clone(),)+
                    _ => {}
                }
            }
        }
    };
    (@keys) => { None };
    (@keys [$($key:literal),*]) => { Some(&[$($key),*]) };
}

pub(crate) use settings;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_octal() {
        for (text, expected) in [
            ("0660", Some(0o660)),
            ("600", Some(0o600)),
            ("0", Some(0)),
            ("888", None),
            ("01777", None),
            ("", None),
            ("rw", None),
        ] {
            assert_eq!(SocketMode::from_text(text).ok().map(|mode| mode.0), expected, "{text:?}");
        }
    }

    #[test]
    fn a_key_is_the_flag_in_camel_case_unless_it_is_named() {
        let definition = |flag, named_keys| Definition { flag, named_keys, shape: Shape::Text };
        let by_flag = definition("tls-cert-file", None);
        assert_eq!(by_flag.keys(), ["tlsCertFile"]);
        assert_eq!(by_flag.variable(), "POD_INDEX_TLS_CERT_FILE");
        assert_eq!(definition("manifest-url", Some(&["staticPodURL"])).keys(), ["staticPodURL"]);
        assert_eq!(definition("config", Some(&[])).key(), None);
    }
}
