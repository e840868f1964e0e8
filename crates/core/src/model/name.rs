//! Names that are text under a rule: compared and printed, never taken apart.
//!
//! They stand in paths, journal lines and error texts, so a text that breaks its rule cannot become one.
//! The agent makes its own names with the same macro.

/// A name type: `name! { /// Doc. Type, "what it is", rule, "the rule in words" }`, where `rule` is a
/// `fn(&str) -> bool`. It parses, prints and serialises as its text.
#[macro_export]
macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $rule:expr, $why:literal $(,)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(String);

        impl $type {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::model::id::IdError;

            fn from_str(text: &str) -> Result<Self, $crate::model::id::IdError> {
                let rule: fn(&str) -> bool = $rule;
                if rule(text) {
                    return Ok(Self(text.to_owned()));
                }
                Err($crate::model::id::IdError { what: $what, text: $crate::model::name::shown(text), why: $why })
            }
        }

        impl TryFrom<String> for $type {
            type Error = $crate::model::id::IdError;

            fn try_from(text: String) -> Result<Self, $crate::model::id::IdError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.0
            }
        }
    };
}

/// How much of a refused text an error shows.
const SHOWN_MAX: usize = 80;

/// A refused text as an error may show it: short, and without anything a terminal would obey.
pub fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect::<String>().escape_default().to_string()
}

/// A host label as DNS and PVE take it: 1 to 63 letters, digits and inner hyphens.
pub fn is_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    (1..=63).contains(&text.len())
        && text.bytes().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// 1 to 255 printable ASCII characters without blanks: 255 is the longest file name.
pub fn is_printable(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}
