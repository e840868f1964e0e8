//! What to say to a word that is no verb of ours but means something to people who know Proxmox, Terraform or kubectl.
//!
//! One table. A word that is not in it gets clap's own answer, which offers what is spelled alike.

use evenkeel_core::action_registry::ActionKind;

/// What to type instead, for words that are no actions.
const WORDS: &[(&[&str], &str)] = &[
    (&["delete", "remove", "rm", "purge"], "evenkeel request destroy GUEST"),
    (&["snapshots", "revert", "undo"], "evenkeel request rollback GUEST snapname=NAME"),
    (&["list", "ls", "ps", "get"], "evenkeel status"),
    (&["diff", "preview", "show-plan"], "evenkeel plan"),
    (&["allow", "confirm"], "evenkeel approve PENDING --key KEY"),
    (&["log", "logs", "history"], "evenkeel journal"),
    (&["init", "export", "dump"], "evenkeel import --out DIR"),
    (&["check", "lint", "test"], "evenkeel validate DIR"),
    (&["agent", "daemon", "serve"], "evenkeel run"),
    (&["pause", "lock"], "evenkeel freeze"),
    (&["resume", "unfreeze", "unlock"], "evenkeel thaw"),
];

/// Words for an action that Proxmox's own tools have.
const ACTIONS: &[(&str, ActionKind)] = &[
    ("reboot", ActionKind::Shutdown),
    ("restart", ActionKind::Shutdown),
    ("set", ActionKind::SetConfig),
    ("config", ActionKind::SetConfig),
    ("delsnapshot", ActionKind::DeleteSnapshot),
];

/// The message and the hint for a word; none if it means nothing here.
pub(crate) fn advice(word: &str, rest: &[String]) -> Option<(String, String)> {
    if let Some((_, command)) = WORDS.iter().find(|(words, _)| words.contains(&word)) {
        return Some((format!("evenkeel has no verb {word}"), format!("`{command}`")));
    }
    let alias = ACTIONS.iter().find(|(other, _)| *other == word).map(|(_, kind)| *kind);
    let kind: ActionKind = alias.or_else(|| word.parse().ok())?;
    let given: Vec<&str> =
        rest.iter().map(String::as_str).filter(|arg| !arg.starts_with('-')).collect();
    let guest = if given.is_empty() { "GUEST".to_owned() } else { given.join(" ") };
    if kind.not_requestable().is_none() {
        let message = format!("{word} is not a verb: request it, and an operator signs it");
        return Some((message, format!("`evenkeel request {kind} {guest}`")));
    }
    let message = format!("{word} is not a verb: declare it in the guest's desired file");
    Some((message, format!("{}, then `evenkeel apply`", declaration(kind))))
}

/// What to write into a desired file.
fn declaration(kind: ActionKind) -> &'static str {
    match kind {
        ActionKind::Start => "declare run = \"running\" in the guest's desired file",
        ActionKind::Shutdown => "declare run = \"stopped\" in the guest's desired file",
        ActionKind::Stop => {
            "declare run = \"stopped\" and stop = \"force\" in the guest's desired file"
        }
        ActionKind::Resize => "declare the larger size of the disk in the guest's desired file",
        ActionKind::MoveVolume => "declare the new storage of the disk in the guest's desired file",
        ActionKind::Create
        | ActionKind::Clone
        | ActionKind::Restore
        | ActionKind::SetConfig
        | ActionKind::Snapshot
        | ActionKind::Backup
        | ActionKind::Destroy
        | ActionKind::Rollback
        | ActionKind::DeleteSnapshot
        | ActionKind::DeleteVolume
        | ActionKind::Migrate
        | ActionKind::Template
        | ActionKind::WipeStorage
        | ActionKind::Decommission => "declare it in the guest's desired file",
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn an_action_is_pointed_to_its_request_or_its_declaration() {
        let told = |line: &str| {
            let mut words = line.split(' ').map(str::to_owned);
            let word = words.next().unwrap();
            advice(&word, &words.collect::<Vec<_>>()).map(|(_, hint)| hint)
        };
        assert_eq!(told("destroy 100").unwrap(), "`evenkeel request destroy 100`");
        assert_eq!(
            told("rollback web snapname=a -y").unwrap(),
            "`evenkeel request rollback web snapname=a`"
        );
        assert!(told("start 100").unwrap().contains("run = \"running\""));
        assert!(told("rm 100").unwrap().contains("request destroy"));
        assert_eq!(told("frobnicate"), None);
    }

    #[test]
    fn no_word_of_the_table_is_a_verb() {
        let command = crate::cli::Cli::command();
        let verbs: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let words = WORDS.iter().flat_map(|(words, _)| words.iter());
        for word in words.chain(ACTIONS.iter().map(|(word, _)| word)) {
            assert!(!verbs.contains(word), "{word}");
        }
    }
}
