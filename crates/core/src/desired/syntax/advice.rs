//! What to do about a text that breaks the rules of its syntax, for the mistakes people really make.
//!
//! The parsers say what they expected, which helps who knows the syntax. Their words are matched in part, so that another
//! release of a parser costs an advice and never a message.

/// Words of a parser's message, and the next step.
const ADVICE: &[(&str, &str)] = &[
    // TOML
    (
        "string values must be quoted",
        "put text and sizes into quotes, as in kind = \"lxc\"; a switch is true or false",
    ),
    ("invalid basic string", "close the quotes at the end of the text"),
    ("invalid literal string", "close the quotes at the end of the text"),
    ("invalid unquoted key", "write key = value, with letters, digits, - and _ in the key"),
    ("key with no value", "write key = value"),
    ("unclosed table", "close the heading with ], as in [guest.101]"),
    (
        "missing comma between key-value pairs",
        "close the table above with }, or put a comma between its parts",
    ),
    ("unclosed inline table", "close the table with }"),
    ("unclosed array", "close the list with ]"),
    ("missing array opening", "a list begins with [ and ends with ]"),
    ("escape", "write two backslashes for one, or put the text into single quotes"),
    // YAML
    (
        "did not find expected key",
        "begin all keys of one level in the same column, and close every quote",
    ),
    ("mapping values are not allowed", "put a text with a colon in it into quotes"),
    ("document start", "YAML has key: value, one a line; name the file .toml if it is TOML"),
    ("quoted scalar", "close the quotes at the end of the text"),
    ("unclosed bracket", "close the bracket"),
    ("block sequence", "begin all items of a list in the same column"),
    // JSON
    ("comments are not allowed", "remove the comment: JSON has none, TOML and YAML do"),
    ("trailing commas", "remove the last comma"),
    ("single-quoted", "write double quotes"),
    ("unterminated", "close every quote, bracket and brace"),
    ("expected comma", "put a comma between two values"),
];

/// The next step for a mistake of syntax.
pub(super) fn advice(message: &str) -> &'static str {
    let message = message.to_lowercase();
    let found = ADVICE.iter().find(|(words, _)| message.contains(words));
    found.map_or(
        "see that quotes, brackets and commas fit, here and in the line above",
        |(_, advice)| advice,
    )
}
